"""Round 0 on Flower: a client that sends nonsense, or nothing, costs nobody else anything; who has little says nothing."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from flwr.app import Message

import polyfed as pf
from flower_runs import NAMES, OPEN, assert_same_server, nodes_of, on_grid, on_node, study
from polyfed.data import Limits
from polyfed.errors import DataError
from polyfed.flower import internals, versions
from polyfed.flower.client_app import app
from polyfed.flower.grid import SERVER, InProcessGrid
from polyfed.flower.strategy import Timeouts
from polyfed.flower.wire import content, opened
from polyfed.predictions import Predictions

LIAR = SERVER + 1 + 3  # the fourth node


class Lying(InProcessGrid):
    """A Grid whose fourth node answers the question of round 0 with what `lie` makes of its honest note."""

    def __init__(self, nodes, lie):
        super().__init__(app, nodes)
        self.lie = lie

    def _run_client(self, message):
        reply = super()._run_client(message)
        if message.metadata.dst_node_id != LIAR or message.metadata.message_type != "query":
            return reply
        note = self.lie(opened(reply)[0])
        internals.be(LIAR, run=1)
        try:
            record = content(note if isinstance(note, dict) else {})
            if isinstance(note, str):
                record.config_records["polyfed"]["note"] = note
            corrupted = Message(record, reply_to=message)
        finally:
            internals.be(SERVER, run=1)
        corrupted.metadata.__dict__["_src_node_id"] = LIAR
        return corrupted


def four(tables, place):
    """Three honest nodes, and zug with the table of bern."""
    nodes = nodes_of(tables, place / "state")
    return [*nodes, {**nodes[1], "client": "zug", "state": str(place / "state" / "zug")}]


def put(*path, to):
    def lie(note):
        at = note
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to
        return note

    return lie


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (put("summary", "moments", "mean", to=["x"]), "zug: moments: a mean is 'x', not a number"),
        (put("summary", "moments", "count", to=[10**15]), "zug: moments: a count is 1000000000000000"),
        (put("summary", "labels", "height", to=-1), "zug: labels of task 'height' is -1"),
        (put("summary", "columns", to=5), "zug: columns are 5, not a list"),
        (put("summary", to=None), "zug: its summary is None, not an object"),
        (lambda note: {"client": "zug"}, "zug: its summary is None, not an object"),
        (put("client", to=["zug"]), "node 5: its answer is not understood (its name is a list)"),
        (put("client", to="\x1b[31m"), "node 5: its answer is not understood (its name is '\\x1b[31m')"),
        (put("client", to="x" * 10**6), "node 5: its answer is not understood (its name is 'xxxx"),
        (put("client", to="bern"), "bern: 2 nodes say that they are this client"),
        (lambda note: {"error": "one\ntwo " + "x" * 9999}, "node 5: one two xxx"),
        (lambda note: "[" * 100_000, "node 5: its answer is not understood (the note is nested too deep)"),
        (lambda note: "7", "node 5: its answer is not understood (the note is a int)"),
        (lambda note: "no json", "node 5: its answer is not understood (Expecting value"),
    ],
    ids=range(14),
)
def test_a_liar_is_rejected_by_name_and_the_others_go_on(lie, reason, tables, tmp_path):
    grid = Lying(four(tables, tmp_path), lie)
    server_run = on_grid(study(rounds=1), tables, tmp_path, grid=grid, timeouts=Timeouts(nodes=4, wait=0.0))
    ((name, why),) = server_run.prepared.round0.rejected.items()
    assert f"{name}: {why}".startswith(reason)
    assert len(why) <= 300
    honest = NAMES if name != "bern" else ("basel", "thun")
    assert server_run.prepared.spec.clients == honest
    assert server_run.events[0]["rejected"] == {name: why}
    assert server_run.events[1]["sampled"] == list(honest)
    alone = on_grid(study(rounds=1), tables, tmp_path / "alone", names=honest)
    assert_same_server(alone.federation_state.server, server_run.federation_state.server, tolerance=0.0)


NO_USE = "node 5: its data cannot be used; the log of that node says why"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("age,height,high\n50,100,yes\n51,101,no\n", "zug: lacks column 'ward', which most clients have"),
        ("age,ward,height,high,pulse\n50,north,100,yes,60\n", "zug: has column 'pulse', which most clients lack"),
        ("age,ward,height,high\n50,north,SECRET,yes\n", NO_USE),
        ("age,ward,mood\n50,north,3\n", NO_USE),
        ("age,ward,height,high\n50,north,100,perhaps\n", "zug: task 'high': 'perhaps' is a third class"),
        ("age,ward,height,high\nold,north,100,yes\n", "zug: column 'age' holds text, and number at most clients"),
        (None, NO_USE),
    ],
)
def test_a_node_with_another_table(text, reason, tables, tmp_path):
    if text is not None:
        (tmp_path / "zug.csv").write_text(text)
    seen = []
    nodes = [*nodes_of(tables, tmp_path / "state"), {"data": str(tmp_path / "zug.csv"), **OPEN}]
    grid = InProcessGrid(app, nodes, watch=seen.append)
    server_run = on_grid(study(rounds=1), tables, tmp_path, grid=grid, timeouts=Timeouts(nodes=4, wait=0.0))
    ((name, why),) = server_run.prepared.round0.rejected.items()
    assert f"{name}: {why}" == reason
    assert server_run.prepared.spec.clients == NAMES
    assert not any("SECRET" in json.dumps(opened(message)[0]) for message in seen)  # an error does not quote the data


def test_without_a_quorum_round_0_ends_the_study(tables, tmp_path):
    nodes = four(tables, tmp_path)
    nodes[0]["data"] = str(tmp_path / "nowhere.csv")
    grid = Lying(nodes, put("summary", "gaps", to={}))
    with pytest.raises(DataError) as error:
        on_grid(study(quorum=0.75), tables, tmp_path, grid=grid, timeouts=Timeouts(nodes=4, wait=0.0))
    assert str(error.value) == (
        "round 0: 2 of 4 clients are rejected, so there is no quorum; node 2: its data cannot be used; the log of that node "
        "says why; correct it there, or lower run.quorum."
    )
    assert not (tmp_path / "server").exists()


# ---- limits ------------------------------------------------------------------------------------------------------------


def write_places(folder, small=6):
    """Two places with enough rows, and zug with few; wards with names of people, and one stage that is only zug's."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    for name, n in (("basel", 40), ("bern", 40), ("zug", small)):
        x = rng.uniform(-2, 2, n)
        ward = np.where(x > 0, "north", "south").astype(object)
        ward[:2] = [f"Dr {name}", "Dr Who"]
        table = pd.DataFrame({"age": 50 + 10 * x, "ward": ward, "height": 100 + 10 * np.sin(2 * x)})
        table["high"] = np.where(np.sin(2 * x) > 0, "yes", "no")
        if name == "zug":
            table["high"] = "unheard of"
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


PLACES = ("basel", "bern", "zug")
DATA = {"tasks": [{"name": "height"}, {"name": "high", "kind": "multiclass"}]}


def run_with(tmp_path, *, names=PLACES, limits=None, rounds=2, small=6, data=None, **options):
    tables, seen = write_places(tmp_path / "tables", small), []
    nodes = nodes_of(tables, tmp_path / "state", names, limits=limits or {})
    grid = InProcessGrid(app, nodes, watch=seen.append)
    server_run = on_grid(
        study(rounds=rounds, data={**DATA, **(data or {})}, **options), tables, tmp_path, grid=grid, names=names
    )
    sent = [(m.metadata.message_type, m.metadata.src_node_id, *opened(m)) for m in seen]
    return server_run, [message for message in sent if message[1] != SERVER]


@pytest.mark.parametrize("method", ["pfed-mul", "fedper"])
def test_a_small_client_tells_nothing_and_is_served(method, tmp_path):
    """The defaults of a node: ten labels, counts of five."""
    server_run, sent = run_with(tmp_path, method=method)
    zug = [(kind, note, arrays) for kind, node, note, arrays in sent if node == SERVER + 3]
    assert [kind for kind, *_ in zug] == ["query", "evaluate"]
    assert {kind: note for kind, note, _ in zug} == {
        "query": {
            "client": "zug",
            "versions": versions.mine(),
            "summary": pf.data.ClientSummary.nothing().to_dict(),
        },
        "evaluate": {"client": "zug", "lost": False, "scores": zug[1][1]["scores"]},
    }
    assert all(entry["scores"] == {} for entry in zug[1][1]["scores"])
    text = json.dumps([note for _, _, note, _ in sent])
    assert "unheard" not in text
    assert "Dr " not in text
    assert server_run.prepared.round0.silent == ("zug",)
    assert server_run.events[0]["silent"] == ["zug"]
    alone, _ = run_with(tmp_path / "alone", names=("basel", "bern"), method=method)
    assert_same_server(alone.federation_state.server, server_run.federation_state.server, tolerance=0.0)
    # Its model is that of a client which joins late, with all its labels that the model knows.
    own, new = on_node(tmp_path, server_run, "zug"), pd.DataFrame({"age": [45.0, 60.0], "ward": ["north", "other"]})
    table = pd.read_csv(tmp_path / "tables" / "zug.csv").replace({"ward": {"Dr zug": "other", "Dr Who": "other"}})
    mine = own.prepared.clients["zug"].train
    assert mine.counts()["height"] == len(mine.x) > 0
    rows = table[
        np.isin(
            table["height"].round(6), own.prepared.agreed.codecs["height"].decode(mine.labels["height"][1]).round(6)
        )
    ]
    late = pf.load(tmp_path / "server").join("zug", (rows[["age", "ward"]], {"height": rows["height"]}))
    assert_same(own.client("zug").predict(new), late.predict(new))
    assert own.prepared.round0.unknown == {"zug": {"high": 6}}


def assert_same(a: Predictions, b: Predictions) -> None:
    np.testing.assert_allclose(a["height"].mean, b["height"].mean, rtol=1e-9)
    np.testing.assert_allclose(a["height"].std, b["height"].std, rtol=1e-9)


def test_a_server_that_asks_a_silent_client_anyway_gets_nothing(tmp_path):
    from polyfed.flower import node
    from polyfed.flower.own_config import OwnConfig
    from polyfed.flower.round_context import RoundContext

    server_run, _ = run_with(tmp_path, rounds=1)
    about = json.loads((tmp_path / "server" / "flower.json").read_text())
    config = study(rounds=3, data=DATA).model_dump(mode="json", exclude={"compare"})
    context = RoundContext(about["study"], config, 0, server_run.prepared.agreed.to_dict(), PLACES, round=2, rounds=3)
    own = OwnConfig.of(nodes_of(tmp_path / "tables", tmp_path / "state", PLACES, limits={})[2])
    message = server_run.method.broadcast(server_run.federation_state.server, "zug")
    with pytest.raises(
        pf.UsageError, match="'zug' has fewer than 10 training labels of every task and sends no update"
    ):
        node.train(context, own, message)


def test_the_owner_may_lower_the_limits_and_a_study_may_not(tmp_path):
    lowered, _ = run_with(tmp_path / "a", limits={"min-rows": 4, "min-count": 1}, rounds=1)
    assert lowered.prepared.round0.silent == ()
    assert "Dr " in json.dumps(lowered.prepared.agreed.to_dict())
    asked, _ = run_with(tmp_path / "b", rounds=1, data={"min_rows": 1, "min_count": 1})
    strict, _ = run_with(tmp_path / "c", limits=OPEN, rounds=1, data={"min_rows": 30})
    assert asked.prepared.round0.silent == ("zug",)
    assert "Dr " not in json.dumps(asked.prepared.agreed.to_dict())
    assert strict.prepared.round0.silent == ("zug",)


def test_scores_of_few_labels_are_not_told(tmp_path):
    server_run, sent = run_with(tmp_path, small=16)  # 12 training rows, 4 test rows
    assert server_run.prepared.round0.silent == ()
    last = {node: note["scores"] for kind, node, note, _ in sent if kind == "evaluate"}
    assert all(entry["scores"] == {} for entry in last[SERVER + 3])
    assert all(set(entry["scores"]) == {"height", "high"} for entry in last[SERVER + 1])
    own = on_node(tmp_path, server_run, "zug")
    assert any("zug" in event.get("clients", ()) for event in own.events if event["event"] == "evaluation")


def test_of_a_small_task_nothing_is_told_at_all(tmp_path):
    """Neither in round 0, nor by an update, nor by a score: the others learn as if the labels were not there."""
    server_run, sent = {}, {}
    for case in ("few", "none"):
        tables = write_places(tmp_path / case / "tables", small=40)
        table = pd.read_csv(tables / "zug.csv")
        table["high"] = [label if case == "few" and i < 9 else None for i, label in enumerate(["yes", "no"] * 20)]
        table.to_csv(tables / "zug.csv", index=False)
        seen = []
        nodes = nodes_of(tables, tmp_path / case / "state", PLACES, limits={"min-count": 1})
        grid = InProcessGrid(app, nodes, watch=seen.append)
        config = study(rounds=2, data={**DATA, "test": 0.0})  # which rows are held out depends on all labels
        server_run[case] = on_grid(config, tables, tmp_path / case, grid=grid, names=PLACES)
        sent[case] = [opened(message)[0] for message in seen if message.metadata.src_node_id == SERVER + 3]
    assert_same_server(
        server_run["few"].federation_state.server, server_run["none"].federation_state.server, tolerance=0.0
    )
    assert server_run["few"].prepared.round0.labels["zug"] == {"height": 40}
    assert sent["few"] == sent["none"]
    own = on_node(tmp_path / "few", server_run["few"], "zug")
    assert own.prepared.clients["zug"].train.counts() == {"height": 40, "high": 9}  # its own model uses them


def test_no_score_of_a_small_task_is_told(tmp_path):
    tables = write_places(tmp_path / "tables", small=40)
    table = pd.read_csv(tables / "zug.csv")
    table["high"] = [label if i < 11 else None for i, label in enumerate(["yes", "no"] * 20)]
    table.to_csv(tables / "zug.csv", index=False)
    seen = []
    nodes = nodes_of(tables, tmp_path / "state", PLACES, limits={"min-count": 1})
    grid = InProcessGrid(app, nodes, watch=seen.append)
    on_grid(study(rounds=1, data=DATA), tables, tmp_path, grid=grid, names=PLACES)
    zug = [opened(message)[0] for message in seen if message.metadata.src_node_id == SERVER + 3]
    assert {tuple(entry["scores"]) for note in zug for entry in note.get("scores", ())} == {("height",)}


def test_a_federation_in_one_process_may_be_played_under_the_same_limits(tmp_path):
    server_run, _ = run_with(tmp_path)
    tasks = [pf.Task("height"), pf.Task("high", "multiclass")]
    federation = pf.Federation.from_table(tmp_path / "tables", tasks=tasks, split=pf.Split(test=0.25))
    run = pf.simulate("pfed-mul", federation.with_options(limits=Limits(10, 5)), rounds=2, evaluate_every=2)
    assert_same_server(run.federation_state.server, server_run.federation_state.server)
    assert run.silent == ["zug"]
    assert run.untrained == []
    new = pd.DataFrame({"age": [45.0, 60.0], "ward": ["north", "other"]})
    for name in PLACES:
        assert_same(run.client(name).predict(new), on_node(tmp_path, server_run, name).client(name).predict(new))
