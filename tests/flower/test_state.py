"""A client's state on disk: whatever kills the node, and whenever, the next message finds what it needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from flower_runs import NAMES, nodes_of, on_grid, study
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.rounds import FederationState
from polyfed.flower import node, versions
from polyfed.flower.own_config import OwnConfig
from polyfed.flower.round_context import RoundContext
from polyfed.folders.lines import rounds_of
from polyfed.methods import method
from polyfed.methods.messages import strip_prefix

KILLED_AT_EVERY_STEP = textwrap.dedent(
    """
    # Plays round 2 of a client in a child process that is killed at the n-th line of the code that writes, for every n.
    import json, os, signal, sys
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from polyfed.flower import node
    from polyfed.flower.round_context import RoundContext
    from polyfed.flower.own_config import OwnConfig
    from polyfed.engine.checkpoints import Checkpoints
    from polyfed.engine.rounds import FederationState
    from polyfed.methods.messages import from_bytes

    where, place = OwnConfig.of(json.loads(sys.argv[1])), json.loads(sys.argv[2])
    sent = from_bytes(Path(sys.argv[3]).read_bytes())
    round_context = RoundContext.from_dict(place)
    first = node.Member.of(round_context, where)
    before = first.state(1)[0]
    _, wanted = node.train(round_context.at(2, 1), where, sent)  # as it is when nobody kills
    after = first.state(2)[0]
    first.states.forget_after(1)

    def same(a, b):
        return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)

    def kill_at(n):
        seen = 0
        def trace(frame, event, argument):
            nonlocal seen
            if not frame.f_code.co_filename.endswith(("polyfed/files.py", "checkpoints.py")):
                return None
            if event == "line":
                seen += 1
                if seen == n:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)

    kills, outcomes = 0, set()
    while True:
        child = os.fork()
        if child == 0:
            kill_at(kills + 1)
            first.states.write(FederationState(2, {}, {first.name: after}), 0)  # as node.train does at its end
            sys.settrace(None)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
        states = Checkpoints(first.folder / "states")
        try:
            found = states.read(2)[0].clients[first.name]
            assert same(found, after), "half of a state was taken for a whole one"
            outcomes.add("new")
        except ValueError:
            outcomes.add("old")
        assert same(states.read(1)[0].clients[first.name], before), "the state before was touched"
        if kills % 10 == 1:
            reply, update = node.train(round_context.at(2, 1), where, sent)  # the server asks again
            assert reply == {"client": first.name, "lost": False} and same(update, wanted)
        states.forget_after(1)
    leftovers = [path.name for path in (first.folder / "states" / "checkpoints").iterdir() if not path.name.startswith(".")]
    print(json.dumps({"kills": kills, "outcomes": sorted(outcomes), "leftovers": sorted(leftovers)}))
    """
)


def begun(tables, tmp_path):
    """A study after its first round, as a client of it knows it."""
    server_run = on_grid(study(rounds=1, scheme="K", evaluate_every=0), tables, tmp_path)
    about = json.loads((tmp_path / "server" / "flower.json").read_text())
    config = study(rounds=3, scheme="K").model_dump(mode="json", exclude={"compare"})
    round_context = RoundContext(
        about["study"], config, 0, server_run.prepared.agreed.to_dict(), NAMES, round=2, rounds=3, accepted=1
    )
    return server_run, round_context


@pytest.mark.slow
def test_a_kill_at_any_step_of_the_write_costs_nothing(tables, tmp_path):
    from polyfed.methods.messages import to_bytes

    server_run, round_context = begun(tables, tmp_path)
    (tmp_path / "sent").write_bytes(to_bytes(server_run.method.broadcast(server_run.federation_state.server, "bern")))
    where = nodes_of(tables, tmp_path / "state")[1]
    arguments = [json.dumps(where), json.dumps(round_context.to_dict()), str(tmp_path / "sent")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EVERY_STEP, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["kills"] > 40  # every line of the write was the last one once
    assert found["outcomes"] == ["new", "old"]
    assert {"000001.json", "000001.safetensors"} <= set(found["leftovers"])


def test_a_state_counts_only_when_the_server_says_so(tables, tmp_path):
    server_run, round_context = begun(tables, tmp_path)
    where = OwnConfig.of(nodes_of(tables, tmp_path / "state")[0])
    sent = server_run.method.broadcast(server_run.federation_state.server, "basel")
    me = node.Member.of(round_context, where)
    first = me.state(1)[0]
    node.train(round_context.at(2, 1), where, sent)
    unused = me.states.read(2)[0].clients["basel"]
    node.train(round_context.at(3, 1), where, sent)  # the server did not use the update of round 2
    assert rounds_of(me.states.folder) == [1, 3]
    again = me.state(1)[0]
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], unused[name]) for name in first)
    assert rounds_of(me.states.folder) == [1]


def test_a_client_that_lost_its_state_begins_anew_and_says_so(tables, tmp_path):
    server_run, round_context = begun(tables, tmp_path)
    where = OwnConfig.of(nodes_of(tables, tmp_path / "state")[0])
    sent = server_run.method.broadcast(server_run.federation_state.server, "basel")
    me = node.Member.of(round_context, where)
    for path in (me.folder / "states" / "checkpoints").iterdir():
        path.write_bytes(b"not what it was")
    reply, _ = node.train(round_context, where, sent)
    assert reply == {"client": "basel", "lost": True}


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_client_sent_counts_once_even_if_it_loses_its_state(tables, tmp_path, kept):
    """The server's sums are those of what each client sent last, also if bern's folder is gone after round 2."""
    options = {"method": "pfed-hier", "evaluate_every": 0, "quorum": 0.5}
    on_grid(study(rounds=2, **options), tables, tmp_path)
    about = json.loads((tmp_path / "server" / "flower.json").read_text())

    def own(name, round):
        states = Checkpoints(node.folder_of(tmp_path / "state" / name, about["study"], name) / "states")
        return states.read(round)[0].clients[name]

    last = {"bern": own("bern", 2)}
    if not kept:
        shutil.rmtree(tmp_path / "state" / "bern")
    run = on_grid(study(rounds=4, **options), tables, tmp_path)
    last |= {name: own(name, 4) for name in (NAMES if kept else ("basel", "thun"))}
    for name, total in strip_prefix(run.federation_state.server, "evidence").items():
        added = sum(strip_prefix(state, "own")[name] for state in last.values())
        torch.testing.assert_close(total, added, rtol=1e-10, atol=1e-10)
    rejected = [event["rejected"] for event in run.events if event["event"] == "round"]
    assert rejected[:2] == [{}, {}]
    for names in rejected[2:]:
        assert list(names) == ([] if kept else ["bern"])
        assert kept or "client 'bern' has lost its state of round 2" in names["bern"]
        assert kept or "restore the node's state folder from a copy" in names["bern"]


def test_methods_whose_server_adds_up_changes_say_so():
    assert method("pfed-hier").needs_last_state
    assert method("scaffold").needs_last_state
    assert not method("pfed-hier", n_shared=0).needs_last_state  # then it is pfed-mul
    assert not method("pfed-mul").needs_last_state


def test_a_server_that_falls_back_finds_the_states_of_then(tables, tmp_path):
    """The last two checkpoints of the server are damaged: it runs their rounds again, and so do the clients."""
    whole = on_grid(study(rounds=6, scheme="K"), tables, tmp_path / "a")
    on_grid(study(rounds=4, scheme="K"), tables, tmp_path / "b")
    for round in (3, 4):
        (tmp_path / "b" / "server" / "checkpoints" / f"{round:06d}.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="Using the checkpoint before"):
        healed = on_grid(study(rounds=6, scheme="K"), tables, tmp_path / "b")
    assert all(
        torch.equal(value, healed.federation_state.server[name])
        for name, value in whole.federation_state.server.items()
    )
    assert whole.events == healed.events


def test_the_server_writes_down_which_versions_its_nodes_have(tables, tmp_path):
    on_grid(study(rounds=1), tables, tmp_path)
    assert versions.of_nodes(tmp_path) == {str(i): versions.mine() for i in (2, 3, 4)}


def test_states_are_kept_apart_by_study_and_client(tables, tmp_path):
    on_grid(study(rounds=1), tables, tmp_path)
    on_grid(study(rounds=1), tables, tmp_path / "again")
    shared = [{**node, "state": str(tmp_path / "one")} for node in nodes_of(tables, tmp_path)]
    from polyfed.flower.client_app import app
    from polyfed.flower.grid import InProcessGrid

    on_grid(study(rounds=1), tables, tmp_path / "third", grid=InProcessGrid(app, shared))
    (found,) = (tmp_path / "one").iterdir()
    assert sorted(path.name for path in found.iterdir() if path.is_dir()) == [f"client-{name}" for name in NAMES]


def test_half_a_checkpoint_is_none(tmp_path):
    states = Checkpoints(tmp_path)
    states.write(FederationState(1, {}, {"basel": {"a": torch.ones(2)}}), 0)
    (tmp_path / "checkpoints" / "000002.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"there is no 000002\.json"):
        states.read(2)
    assert states.read(1)[0].clients["basel"]["a"].tolist() == [1.0, 1.0]


def test_a_name_may_hold_anything(tmp_path):
    names = ["a/b", "..", "", "x" * 300, "x" * 301, "Zürich", "a b", "."]
    folders = {node.folder_of(tmp_path, "0" * 32, name) for name in names}
    assert len(folders) == len(names)
    assert all(folder.parent == tmp_path / ("0" * 32) for folder in folders)
