"""What polyfed takes from inside Flower is still there. If a test here fails, another version of flwr is installed than
`polyfed.flower.internals` is written for: read its SuperNode (`flwr/supernode`) again, then change that file and SUPPORTED."""

from __future__ import annotations

import inspect
import socket
from importlib.metadata import version

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'polyfed[flower]'")

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.supernode import start_client_internal
from flwr.supernode.fleet_http_client import FleetHttpClient

from polyfed.errors import ConfigError
from polyfed.flower import internals
from polyfed.flower.deploy.making import make_deployment
from polyfed.flower.deploy.node import NodeFolder


def test_the_installed_flower_is_the_one_that_it_is_written_for():
    internals.reject_other_versions()
    assert version("flwr").startswith(internals.SUPPORTED + ".")


@pytest.mark.parametrize("found", ["1.40.2", "1.42.0", "1.410.0", "2.41.0", "1.4"])
def test_another_flower_is_rejected_with_a_remedy(found):
    with pytest.raises(ConfigError, match=rf"{found} is installed; pip install 'flwr==1.41.\*', or .* --stock"):
        internals.reject_other_versions(found)
    internals.reject_other_versions("1.41.7")


@pytest.mark.parametrize(
    ("request_type", "fields"),
    [
        (fleet_pb2.ActivateNodeRequest, {"public_key", "heartbeat_interval"}),
        (fleet_pb2.ActivateNodeResponse, {"node_id"}),
        (fleet_pb2.DeactivateNodeRequest, {"node_id"}),
        (fleet_pb2.PullMessagesRequest, {"node", "message_ids"}),
        (fleet_pb2.PullMessagesResponse, {"reconnect", "messages_list", "message_object_trees"}),
        (
            fleet_pb2.PushMessagesRequest,
            {"node", "messages_list", "message_object_trees", "clientapp_runtime_list"},
        ),
        (fleet_pb2.PushMessagesResponse, {"reconnect", "results", "objects_to_push", "session_id"}),
        (heartbeat_pb2.SendNodeHeartbeatRequest, {"node", "heartbeat_interval"}),
        (message_pb2.PullObjectRequest, {"node", "run_id", "object_id"}),
        (message_pb2.PushObjectRequest, {"node", "run_id", "object_id", "object_content", "session_id"}),
        (message_pb2.ConfirmMessageReceivedRequest, {"node", "run_id", "message_object_id"}),
        (message_pb2.ObjectTree, {"object_id", "children"}),
    ],
)
def test_requests_have_the_fields_that_are_filled_in_and_no_others(request_type, fields):
    assert {field.name for field in request_type.DESCRIPTOR.fields} == fields


def test_flowers_own_node_makes_the_same_requests():
    """A request that it makes and ours does not, or a new one, is a change of the protocol."""
    calls = {name for name in vars(FleetHttpClient) if name[0].isupper()}
    ours = "ActivateNode DeactivateNode SendNodeHeartbeat PullMessages PushMessages"
    ours += " PullObject PushObject ConfirmMessageReceived"
    others = "RegisterNode UnregisterNode GetRun GetFab"  # no key of its own making, and no app of a server
    assert calls == {*ours.split(), *others.split()}
    assert list(inspect.signature(start_client_internal._pull_and_store_message).parameters)[3:8] == [
        "receive",
        "get_run",
        "get_fab",
        "pull_object",
        "confirm_message_received",
    ]


def test_the_servers_grid_asks_again_by_a_name_that_can_be_replaced(monkeypatch):
    grid = internals.http_grid
    monkeypatch.setattr(grid, "pull_objects", grid.pull_objects)  # put back at the end
    internals.ask_soon(30.0)
    assert grid.pull_objects.keywords == {"initial_backoff": internals.SOON, "max_time": 30.0}
    assert "pull_objects" in grid.HttpGrid.pull_messages.__code__.co_names
    assert "time" in grid.HttpGrid.send_and_receive.__code__.co_names  # which polls.PollingGrid takes the place of


def test_a_message_goes_through_bytes_with_its_number_and_its_sender():
    internals.be(7, run=3)
    message = Message(RecordDict(), dst_node_id=1, message_type="train", ttl=12.0)
    internals.number(message, "a" * 64)
    came = internals.from_bytes(internals.to_bytes(message))
    metadata = came.metadata
    assert (metadata.run_id, metadata.src_node_id, metadata.message_id, metadata.ttl) == (3, 7, "a" * 64, 12.0)
    internals.be(1, run=3)
    reply = internals.from_bytes(internals.to_bytes(internals.failed(came, internals.CRASHED, "it fell")))
    assert reply.metadata.reply_to_message_id == "a" * 64
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (1, 7)
    assert reply.error == Error(internals.CRASHED, "it fell")


def test_requests_are_signed_name_the_version_and_fail_as_httpx_says(tmp_path):
    root = make_deployment(tmp_path / "d", "127.0.0.1", ["basel"]).node("basel")
    node = NodeFolder(root, "", None, "basel", root)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # nobody will be there
    requests = internals.FleetRequests(f"127.0.0.1:{port}", node.authority, node.key)
    try:
        with pytest.raises(internals.TransportError):
            requests.activate()
        seen = []

        def answer(request):
            seen.append(request)
            return httpx.Response(403, json={"code": internals.NODE_REJECTED, "detail": "no"})

        requests._client._client = httpx.Client(transport=httpx.MockTransport(answer))
        with pytest.raises(internals.StatusError) as raised:
            requests.activate()
        assert internals.code_of(raised.value) == internals.NODE_REJECTED == 2004
        asked = fleet_pb2.ActivateNodeRequest.FromString(seen[0].content)
        assert asked.heartbeat_interval == internals.BEAT
        assert asked.public_key.startswith(b"-----BEGIN PUBLIC KEY")
        named = set(seen[0].headers)
        assert any("signature" in name for name in named)
        assert any("version" in name for name in named)
        requests._client._client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(502, text="x")))
        with pytest.raises(internals.StatusError) as raised:
            requests.heartbeat(3)
        assert internals.code_of(raised.value) == 502
    finally:
        requests.close()
