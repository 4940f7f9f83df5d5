"""What goes wrong at one node costs that node its say in the round, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from flwr.app import ArrayRecord, Error, Message, RecordDict

from flower_runs import NAMES, assert_same_server, nodes_of, on_grid, replayed, study
from polyfed.errors import ConfigError, DataError, PolyfedError
from polyfed.flower.client_app import app
from polyfed.flower.grid import InProcessGrid
from polyfed.flower.roster import LONGEST_BACKOFF, Backoff
from polyfed.flower.strategy import Timeouts
from polyfed.flower.wire import content, opened
from polyfed.methods import PFedMul, method

VICTIM = 3  # the number of bern's node
MARK = 0.125  # what the algebra of a test's server cannot stand


class Trouble(InProcessGrid):
    """A Grid at which node `VICTIM` behaves badly in the rounds that `when` names."""

    def __init__(self, nodes, what, when=(2,)):
        super().__init__(app, nodes)
        self.what, self.when, self.asked = what, set(when), []

    def get_node_ids(self):
        return [node for node in self.contexts if self.what != "gone" or node != VICTIM or not self.asked]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = []
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            round = opened(message)[0]["round"]
            if kind == "train":
                self.asked.append((round, node))
            reply = next(iter(super().send_and_receive([message])))
            if kind == "train" and node == VICTIM and round in self.when:
                reply = self.corrupted(message, reply)
            if reply is not None:
                replies.append(reply)
        return replies

    def corrupted(self, message, reply):
        note, arrays = opened(reply)
        name = next(name for name in arrays if name.startswith("arrays/"))
        if self.what == "silent":
            return None
        if self.what == "error":
            broken = Message(Error(2, "Traceback\n  ...\nRuntimeError: deliberate"), reply_to=message)
        elif self.what == "nan":
            broken = Message(content(note, arrays | {name: arrays[name] * float("nan")}), reply_to=message)
        elif self.what == "shape":
            broken = Message(content(note, arrays | {name: torch.zeros(7)}), reply_to=message)
        elif self.what == "name":
            broken = Message(content(note, {**arrays, "arrays/more": torch.zeros(1)}), reply_to=message)
        elif self.what == "weight":
            broken = Message(content(note, arrays | {"weight": torch.tensor(-1.0)}), reply_to=message)
        elif self.what == "algebra":
            broken = Message(content(note, arrays | {"metrics/bound": torch.tensor(MARK)}), reply_to=message)
        elif self.what == "empty":
            broken = Message(RecordDict({"something": ArrayRecord()}), reply_to=message)
        else:
            broken = Message(content(note, {"nonsense": torch.zeros(1)}), reply_to=message)
        broken.metadata.__dict__["_src_node_id"] = VICTIM
        return broken


def without(victim, rounds, config, tables):
    """The rounds in this process, with the victim left out of some of them."""
    events = [
        {"round": round, "sampled": NAMES, "rejected": {victim} if round in rounds else {}, "used": True}
        for round in range(1, config.run.rounds + 1)
    ]
    server_run = replayed(tables, events, seed=config.run.seed, scheme=config.method.options.get("scheme", "A"))
    return server_run.federation_state.server


@pytest.mark.parametrize("what", ["error", "nan", "shape", "name", "weight", "empty", "nonsense"])
def test_a_bad_answer_is_rejected_by_name(what, tables, tmp_path):
    config = study(rounds=3, scheme="K")
    grid = Trouble(nodes_of(tables, tmp_path / "state"), what)
    server_run = on_grid(config, tables, tmp_path, grid=grid)
    rejected = [event["rejected"] for event in server_run.events if event["event"] == "round"]
    assert [list(names) for names in rejected] == [[], ["bern"], []]
    assert_same_server(without("bern", {2}, config, tables), server_run.federation_state.server)


def test_who_breaks_every_round_of_the_server_ends_nothing(tables, tmp_path, monkeypatch):
    aggregate = PFedMul.aggregate

    def fragile(self, server, updates):
        if any(update.metrics["bound"] == MARK for update in updates.values()):
            raise torch.linalg.LinAlgError("not positive definite")
        return aggregate(self, server, updates)

    monkeypatch.setattr(PFedMul, "aggregate", fragile)
    config = study(rounds=4, scheme="K")
    grid = Trouble(nodes_of(tables, tmp_path / "state"), "algebra", when=range(1, 5))
    server_run = on_grid(config, tables, tmp_path, grid=grid)
    rejected = [event["rejected"] for event in server_run.events if event["event"] == "round"]
    reason = "with its update the round breaks: _LinAlgError: not positive definite"
    assert rejected == [{"bern": reason}] * 4
    assert_same_server(without("bern", {1, 2, 3, 4}, config, tables), server_run.federation_state.server)


def test_who_does_not_answer_is_left_in_peace_for_a_while(tables, tmp_path):
    config = study(rounds=6)
    grid = Trouble(nodes_of(tables, tmp_path / "state"), "silent", when=(1, 3))
    server_run = on_grid(config, tables, tmp_path, grid=grid)
    assert server_run.events[1]["rejected"] == {"bern": "NoAnswer: it went away"}
    assert [round for round, node in grid.asked if node == VICTIM] == [1, 3, 6]  # then one round off, then two
    assert_same_server(without("bern", {1, 2, 3, 4, 5}, config, tables), server_run.federation_state.server)


def test_a_node_that_is_gone_is_not_asked(tables, tmp_path):
    config = study(rounds=3)
    grid = Trouble(nodes_of(tables, tmp_path / "state"), "gone")
    server_run = on_grid(config, tables, tmp_path, grid=grid)
    assert [round for round, node in grid.asked if node == VICTIM] == [1]
    assert server_run.events[2]["rejected"] == {"bern": "NoAnswer: not connected"}
    assert_same_server(without("bern", {2, 3}, config, tables), server_run.federation_state.server)


def test_without_a_quorum_the_run_ends(tables, tmp_path):
    config = study(rounds=10, quorum=1.0)
    grid = Trouble(nodes_of(tables, tmp_path / "state"), "nan", when=range(3, 99))
    with pytest.raises(
        PolyfedError, match="3 rounds in a row had no quorum or were dropped; stopped after round 5"
    ) as error:
        on_grid(config, tables, tmp_path, grid=grid)
    assert error.value.exit_code == 1
    healed = on_grid(config, tables, tmp_path)  # the same folder goes on
    used = [event["used"] for event in healed.events if event["event"] == "round"]
    assert used == [True] * 2 + [False] * 3 + [True] * 5


def test_a_run_in_which_nothing_counted_fails(tables, tmp_path):
    grid = Trouble(nodes_of(tables, tmp_path / "state"), "nan", when=(1, 2))
    with pytest.raises(PolyfedError, match="not one round counted"):
        on_grid(study(rounds=2, quorum=1.0), tables, tmp_path, grid=grid)


def test_backoff_grows_and_ends():
    backoff, asked, round = Backoff(), [], 0
    while len(asked) < 8:
        round += 1
        if backoff.allows("basel", round):
            asked.append(round)
            backoff.failed("basel", round)
    gaps = [b - a - 1 for a, b in pairwise(asked)]
    assert gaps == [1, 2, 4, 8, 16, 16, 16]
    assert max(gaps) == LONGEST_BACKOFF
    backoff.succeeded("basel")
    assert backoff.allows("basel", round + 1)


# ---- round 0 -----------------------------------------------------------------------------------------------------


def test_too_few_nodes(tables, tmp_path):
    with pytest.raises(DataError, match="2 of 3 nodes are connected after 0 s"):
        on_grid(study(), tables, tmp_path, names=NAMES[:2], timeouts=Timeouts(nodes=3, wait=0.0))
    assert not (tmp_path / "server").exists()


def test_a_table_of_several_clients_is_no_nodes(tables, tmp_path):
    (tmp_path / "all.csv").write_text("town,age,ward,height,high\na,50,north,100,yes\nb,51,south,99,no\n")
    grid = InProcessGrid(app, [{"data": str(tmp_path / "all.csv")}])
    with pytest.raises(DataError, match=r"1 of 1 clients are rejected, so there is no quorum; node 2: its data cannot"):
        on_grid(study(data={"client": "town"}), tables, tmp_path, grid=grid, timeouts=Timeouts(nodes=1, wait=0.0))


def test_a_column_or_the_config_may_name_the_client(tables, tmp_path):
    text = (tables / "bern.csv").read_text().splitlines()
    rows = [line + (",town" if i == 0 else ",zug") for i, line in enumerate(text)]
    (tmp_path / "x.csv").write_text("\n".join(rows))
    nodes = nodes_of(tables, tmp_path / "state", ("basel", "thun"))
    nodes += [{**nodes[0], "data": str(tmp_path / "x.csv"), "state": str(tmp_path / "state" / "x")}]
    config = study(rounds=1, data={"client": "town"})
    server_run = on_grid(config, tables, tmp_path, grid=InProcessGrid(app, nodes))
    assert server_run.prepared.spec.clients == ("basel", "thun", "zug")
    nodes[2]["client"] = "chur"
    server_run = on_grid(config, tables, tmp_path / "again", grid=InProcessGrid(app, nodes))
    assert server_run.prepared.spec.clients == ("basel", "chur", "thun")


def test_a_method_that_pools_the_data_cannot_run_here(tables, tmp_path):
    pooling = next(name for name in ("pooled",) if method(name).pools_data)
    with pytest.raises(ConfigError, match="puts all data in one place"):
        on_grid(study(pooling), tables, tmp_path)


def test_a_file_that_changes_during_the_study_is_rejected(tables, tmp_path):
    copy = tmp_path / "tables"
    copy.mkdir()
    for name in NAMES:
        (copy / f"{name}.csv").write_text((tables / f"{name}.csv").read_text())
    on_grid(study(rounds=1), copy, tmp_path)
    with (copy / "bern.csv").open("a") as file:
        file.write("50,north,100,yes\n")
    server_run = on_grid(study(rounds=2), copy, tmp_path)
    (rejected,) = [
        event["rejected"] for event in server_run.events if event["event"] == "round" and event["round"] == 2
    ]
    assert rejected["bern"] == "NodeError: its data cannot be used; the log of that node says why"


def test_a_server_of_another_version_is_named(tables, tmp_path):
    from polyfed.flower.round_context import RoundContext

    with pytest.raises(ConfigError, match="the server speaks format 99, this client 4; install the same version"):
        RoundContext.from_dict({**RoundContext("0" * 32, {}, 0).to_dict(), "format": 99})
