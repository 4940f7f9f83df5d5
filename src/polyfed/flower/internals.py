"""What polyfed uses of Flower beyond its documented interface. It is all here, and nowhere else.

Written for flwr 1.41 and read off its SuperNode: the requests of the Fleet API, how a message is cut into objects, whose
name a message bears, and how long the server's Grid waits before it asks again. `tests/flower/test_internals.py` says
what has changed when another version is installed; `reject_other_versions` says so to a user.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import flwr.superlink.grid.http_grid as http_grid
import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.run import Run as Run  # for those who are a Grid
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from httpx import HTTPStatusError as StatusError
from httpx import TransportError as TransportError  # for those who make requests

from polyfed.errors import ConfigError

SUPPORTED = "1.41"  # of flwr; what is below may be another in the next
BEAT = float(HEARTBEAT_MIN_INTERVAL)  # seconds; a node that is silent for twice as long is offline
SOON = 0.05  # seconds until an object that is still on its way is asked for again; Flower's own is one second

NODE_REJECTED = int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)
RUN_OVER = int(ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED)
OTHER_VERSION = int(ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE)
RAISED, CRASHED = int(ErrorCode.CLIENT_APP_RAISED_EXCEPTION), int(ErrorCode.CLIENT_APP_CRASHED)


class PulledMessage(NamedTuple):
    head: Message
    tree: Any


def reject_other_versions(found: str | None = None) -> None:
    """An error if Flower is not of the version that this file is written for."""
    found = found or version("flwr")
    if not f"{found}.".startswith(f"{SUPPORTED}."):
        what = f"a warm node speaks the language of Flower {SUPPORTED}, and {found} is installed"
        raise ConfigError(what, remedy=f"pip install 'flwr=={SUPPORTED}.*', or start Flower's own node with --stock")


def be(node: int, run: int) -> None:
    """Messages take their sender and their run from here."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, node


def to_bytes(message: Message) -> bytes:
    return message_to_proto(message).SerializeToString()


def from_bytes(packed: bytes) -> Message:
    return message_from_proto(message_pb2.Message.FromString(packed))


def number(message: Message, message_id: str) -> None:
    """Give a message its number, by which a reply names it; Flower's runtime does so on the way."""
    message.metadata.__dict__["_message_id"] = message_id


def sent_by(message: Message, node: int) -> None:
    message.metadata.__dict__["_src_node_id"] = node


def failed(message: Message, code: int, reason: str) -> Message:
    return Message(Error(code, reason), reply_to=message)


def code_of(error: StatusError) -> int:
    """Flower's own number of an error, or that of HTTP if it has none."""
    described = FlowerError.from_json(error.response.text)
    return error.response.status_code if described is None else int(described.code)


def ask_soon(longest: float) -> None:
    """The server's Grid asks for an object that is on its way after `SOON` and not after a second, and gives it up after
    `longest` seconds: it would wait three minutes for one that was lost, and for nobody else meanwhile. In this process."""
    http_grid.pull_objects = functools.partial(pull_objects, initial_backoff=SOON, max_time=longest)


class _Version:
    """Says which Flower this is. Flower's own ends the process when the server has another."""

    def __init__(self) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers.update(self._headers)
        return call_next(context)


class FleetRequests:
    """The requests of one node to a SuperLink, over TLS and signed with its key. Errors are httpx's."""

    def __init__(self, superlink: str, authority: Path, key: Path) -> None:
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        self.signing = NodeAuthHttpInterceptor(private, private.public_key())
        self._key = self.signing._public_key_bytes
        self._client = FleetHttpClient.from_server_address(
            superlink, False, authority.read_bytes(), [_Version(), self.signing]
        )

    def close(self) -> None:
        self._client._client.close()

    def activate(self) -> int:
        """Come online; the node's number."""
        request = fleet_pb2.ActivateNodeRequest(public_key=self._key, heartbeat_interval=BEAT)
        return self._client.ActivateNode(request).node_id

    def deactivate(self, node: int) -> None:
        self._client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=node))

    def heartbeat(self, node: int) -> bool:
        request = heartbeat_pb2.SendNodeHeartbeatRequest(node=Node(node_id=node), heartbeat_interval=BEAT)
        return self._client.SendNodeHeartbeat(request).success

    def pull(self, node: int) -> PulledMessage | None:
        """A message that waits for this node; the server hands it out once."""
        found = self._client.PullMessages(fleet_pb2.PullMessagesRequest(node=Node(node_id=node)))
        if not found.messages_list:
            return None
        return PulledMessage(message_from_proto(found.messages_list[0]), found.message_object_trees[0])

    def fetch(self, node: int, asked: PulledMessage, trying: Callable[..., Any]) -> Message:
        """The message with its content; `trying` calls a function again when the network fails."""
        mine, run = Node(node_id=node), asked.head.metadata.run_id
        one = make_pull_object_fn_protobuf(functools.partial(trying, self._client.PullObject), mine, run)
        whole, names = asked.tree.object_id, [tree.object_id for tree in iterate_object_tree(asked.tree)]
        parts = pull_objects(names, one, initial_backoff=SOON, max_time=asked.head.metadata.ttl)
        received = message_pb2.ConfirmMessageReceivedRequest(node=mine, run_id=run, message_object_id=whole)
        trying(self._client.ConfirmMessageReceived, received)
        message: Any = inflate_object_from_contents(whole, parts)
        number(message, whole)
        return message

    def push(self, node: int, reply: Message, seconds: float, trying: Callable[..., Any]) -> None:
        """Send a reply: the message first, then those of its objects that the server does not have."""
        mine, run = Node(node_id=node), reply.metadata.run_id
        with no_object_id_recompute():
            number(reply, reply.object_id)
            tree, objects = get_object_tree(reply), get_all_nested_objects(reply)
            head = message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)
            first = fleet_pb2.PushMessagesRequest(
                node=mine, messages_list=[head], message_object_trees=[tree], clientapp_runtime_list=[seconds]
            )
            answer = trying(self._client.PushMessages, first)
            for name in answer.objects_to_push:
                content = objects[name].deflate()
                request = message_pb2.PushObjectRequest(
                    node=mine, run_id=run, session_id=answer.session_id, object_id=name, object_content=content
                )
                if not trying(self._client.PushObject, request).stored:
                    raise ValueError("the server does not take the content of a message any more")
