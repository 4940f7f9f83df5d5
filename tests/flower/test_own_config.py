"""A node's owner decides: no path, no file and no code comes from a server, and neither does a laxer limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import nn

from federations import my_networks
from flower_runs import NAMES, OPEN, nodes_of, on_grid, study
from polyfed.data import DEPLOYED, Limits
from polyfed.errors import ConfigError, DataError
from polyfed.flower import node
from polyfed.flower.client_app import app
from polyfed.flower.grid import InProcessGrid
from polyfed.flower.own_config import OwnConfig
from polyfed.flower.round_context import RoundContext
from polyfed.flower.wire import content

STUDY = "0123456789abcdef" * 2


def test_the_defaults_of_a_node():
    own = OwnConfig.of({"data": "/data/basel.csv"})
    assert own == OwnConfig(Path("/data/polyfed-state"), Path("/data/basel.csv"), None, DEPLOYED, ())
    given = {"data": "b.csv", "state": "/s", "client": "b", "min-rows": 3, "min-count": 2, "allow-code": "a.b:c,d:e"}
    assert OwnConfig.of(given) == OwnConfig(Path("/s"), Path("b.csv"), "b", Limits(3, 2), ("a.b:c", "d:e"))


@pytest.mark.parametrize("key", ["min-rows", "min-count"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "10", True])
def test_limits_of_a_node_are_whole_numbers(key, value):
    with pytest.raises(ConfigError, match="give a whole number from 1 up"):
        OwnConfig.of({"data": "b.csv", key: value})


def test_a_node_without_data():
    with pytest.raises(DataError, match="this node's config names no data; start it with polyfed deploy node"):
        OwnConfig.of({"partition-id": 0})


# ---- what a server may write into a message ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../etc", "..", ".", "", "/tmp/x", "a/b", "0" * 31, "0" * 33, "G" * 32, "0" * 31 + "\n", 7, None, ["0" * 32]],
)
def test_the_name_of_a_study_leads_nowhere(name):
    good = RoundContext(STUDY, {}, 0).to_dict()
    with pytest.raises(ConfigError, match=r"the study: 'study' is .*, but the name of a study is 32 digits"):
        RoundContext.from_dict({**good, "study": name})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nodes", "/tmp/elsewhere"),
        ("round", -1),
        ("round", 10**30),
        ("rounds", "3"),
        ("seed", 1.5),
        ("accepted", True),
        ("document", []),
        ("members", "basel"),
        ("members", ["a", 3]),
        ("members", ["x" * 10**6]),
    ],
)
def test_odd_messages_of_a_server(key, value):
    with pytest.raises(ConfigError, match=f"the study: '{key}' is .*ask whoever runs the server") as caught:
        RoundContext.from_dict({**RoundContext(STUDY, {}, 0).to_dict(), key: value})
    assert len(str(caught.value)) < 200


def test_a_message_that_lacks_something():
    with pytest.raises(ConfigError, match="'seed' is None, but it is missing"):
        RoundContext.from_dict(
            {key: value for key, value in RoundContext(STUDY, {}, 0).to_dict().items() if key != "seed"}
        )


def begun(tables, tmp_path):
    agreed = on_grid(study(rounds=1), tables, tmp_path).prepared.agreed.to_dict()
    about = json.loads((tmp_path / "server" / "flower.json").read_text())
    config = study(rounds=3).model_dump(mode="json", exclude={"compare"})
    return RoundContext(about["study"], config, 0, agreed, NAMES, round=2, rounds=3, accepted=1)


def answer_of(tables, place, context):
    """What a node says to this message, whatever it is."""
    from flwr.app import Message

    grid = InProcessGrid(app, nodes_of(tables, place / "state"))
    message = Message(content(context), dst_node_id=2, message_type="query")
    (reply,) = grid.send_and_receive([message])
    return json.loads(str(reply.content.config_records["polyfed"]["note"]))


def test_a_server_cannot_say_where_a_node_writes(tables, tmp_path):
    """The folder is the same whatever the server says, and what lies elsewhere is left alone."""
    context = begun(tables, tmp_path)
    victim = tmp_path / "victim" / context.study / "client-basel"
    victim.mkdir(parents=True)
    (victim / "precious").write_text("mine")
    answer = answer_of(tables, tmp_path, {**context.to_dict(), "nodes": str(tmp_path / "victim")})
    assert answer == {"error": answer["error"]}
    assert "'nodes' is " in answer["error"]
    answer = answer_of(tables, tmp_path, {**context.to_dict(), "study": f"../../victim/{context.study}"})
    assert "the name of a study is 32 digits" in answer["error"]
    assert (victim / "precious").read_text() == "mine"
    own = OwnConfig.of(nodes_of(tables, tmp_path / "state")[0])
    assert node.Member.of(context, own).folder == tmp_path / "state" / "basel" / context.study / "client-basel"


@pytest.mark.parametrize(
    "data",
    [
        {"source": "/etc/passwd"},
        {"dataset": "celeba", "options": {"folder": "/"}},
        {"options": {"folder": "/"}},
        {"images": {"backbone": "os:getcwd"}},
    ],
)
def test_a_server_cannot_choose_what_a_node_reads(data, tables, tmp_path):
    config = study(rounds=1).model_dump(mode="json", exclude={"compare"})
    config["data"] |= data
    answer = answer_of(tables, tmp_path, RoundContext(STUDY, config, 0).to_dict())
    assert "a node reads its own table alone; ask whoever runs the server" in answer["error"]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("scale", [0.0]),
        ("mean", [float("inf")]),
        ("mean", []),
        ("columns", 3),
        ("columns", [{"name": "age", "kind": "number", "gaps": False}]),
        ("codecs", [{"task": {"name": 3}, "classes": None, "shift": 0.0, "scale": 1.0}]),
        ("codecs", [{"task": {"name": "height"}, "classes": None, "shift": 0.0, "scale": -1.0}]),
        ("codecs", []),
        ("more", 1),
    ],
)
def test_an_agreement_that_nobody_can_have_agreed_on(part, value, tables, tmp_path):
    context = begun(tables, tmp_path)
    bad = RoundContext(context.study, context.document, 0, {**context.agreed, part: value}, NAMES)
    with pytest.raises(ConfigError, match="the study: what was agreed cannot be used: "):
        bad.agreement()
    assert context.agreement().to_dict() == context.agreed


# ---- code --------------------------------------------------------------------------------------------------------------


def small(n_features):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh())


def test_code_runs_on_a_node_only_if_its_owner_allows_it(tables, tmp_path, monkeypatch):
    called = []
    my_networks(monkeypatch, small=lambda n: called.append(n) or small(n))
    config = study("fedavg", rounds=1, network="my_networks:small")
    document = config.model_dump(mode="json", exclude={"compare"})
    context = RoundContext(
        STUDY, {**document, "method": {"name": "fedavg", "network": "my_networks:small"}}, 0, rounds=1
    )
    with pytest.raises(ConfigError) as caught:
        context.method()
    assert str(caught.value) == (
        "the study: network = 'my_networks:small' names code, which is not run unasked; allow it by this very name with "
        "--allow-code (on a node also as allow_code in node.toml), if you trust it."
    )
    assert context.method(["my_networks:small"]).network == "my_networks:small"
    with pytest.raises(ConfigError, match="is not run unasked"):
        context.method(["my_networks:other"])
    assert called == []
    some = [{**place, **OPEN, "allow-code": "a:b,my_networks:small"} for place in nodes_of(tables, tmp_path / "state")]
    del some[2]["allow-code"]
    server_run = on_grid(config, tables, tmp_path, grid=InProcessGrid(app, some))
    assert list(server_run.events[1]["rejected"]) == ["thun"]
    assert "is not run unasked" in server_run.events[1]["rejected"]["thun"]
