"""Runs that are killed, interrupted or damaged end as if nothing had happened, and say what did."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import polyfed as pf
from federations import make_federation
from polyfed.engine import run as run_module
from polyfed.errors import Interrupted

ROUNDS = 60  # more than ten kills let pass on a fast machine
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import polyfed as pf
from federations import make_federation
print("ready", flush=True)
pf.simulate("pfed-mul", make_federation(), rounds={rounds}, seed=0, sample=3, scheme="K", evaluate_every=3,
            folder={folder!r}, resume=True)
"""


def start(folder: Path) -> subprocess.Popen:
    code = SCRIPT.format(tests=str(Path(__file__).parents[1]), rounds=ROUNDS, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def whole(folder: Path) -> dict[str, bytes]:
    """All that a run leaves but the times: events, and every array of the last checkpoint."""
    return {
        "events": (folder / "events.jsonl").read_bytes(),
        **{path.name: path.read_bytes() for path in sorted((folder / "checkpoints").glob(f"{ROUNDS:06d}.*"))},
    }


def completed(folder: Path) -> int:
    """Rounds in the events so far."""
    events = folder / "events.jsonl"
    return events.read_bytes().count(b'"event": "round"') if events.is_file() else 0


@pytest.mark.slow
def test_killed_ten_times_and_resumed_it_ends_the_same(tmp_path):
    """Killed a random while after a random round, so that it is in the middle of computing, evaluating or storing."""
    undisturbed = start(tmp_path / "a")
    _, errors = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, errors.decode()
    rng = random.Random(0)
    for _ in range(10):
        process = start(tmp_path / "b")
        assert process.stdout.readline() == b"ready\n"
        until = completed(tmp_path / "b") + rng.choice([0, 1, 2])
        while completed(tmp_path / "b") < until and process.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.06))  # a round takes about as long
        assert process.poll() is None, process.communicate()[1].decode()
        process.kill()
        process.communicate()
    last = start(tmp_path / "b")
    _, errors = last.communicate(timeout=300)
    assert last.returncode == 0, errors.decode()
    expected, found = whole(tmp_path / "a"), whole(tmp_path / "b")
    assert len(expected) == 3
    assert found == expected


def test_ctrl_c_keeps_what_was_done(tmp_path, monkeypatch):
    federation = make_federation()
    expected = pf.simulate("pfed-mul", federation, rounds=5, seed=0)
    original, calls = run_module.run_round, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(run_module, "run_round", interrupted)
    with pytest.raises(Interrupted, match=r"stopped after round 2 of 5; polyfed\.load") as caught:
        pf.simulate("pfed-mul", federation, rounds=5, seed=0, folder=tmp_path / "run")
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.exit_code == 130
    monkeypatch.setattr(run_module, "run_round", original)
    run = pf.load(tmp_path / "run").resume()
    assert run.events == expected.events


@pytest.mark.parametrize("damage", ["truncated", "changed", "no JSON", "broken JSON", "no arrays", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(damage, tmp_path):
    federation = make_federation()
    folder = tmp_path / "run"
    expected = pf.simulate("pfed-mul", federation, rounds=6, seed=0, folder=folder)
    arrays, described = (folder / "checkpoints" / f"000006.{suffix}" for suffix in ("safetensors", "json"))
    content = arrays.read_bytes()
    if damage == "truncated":
        arrays.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        arrays.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no JSON":
        described.unlink()
    elif damage == "broken JSON":
        described.write_bytes(described.read_bytes()[:20])
    elif damage == "no arrays":
        arrays.unlink()
    else:
        arrays.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"000006.* Using the checkpoint before\."):
        run = pf.load(folder)
    assert run.federation_state.round == 5
    assert run.resume().events == expected.events
    assert pf.load(folder).federation_state.round == 6


def test_no_sound_checkpoint_is_an_error(tmp_path):
    folder = tmp_path / "run"
    pf.simulate("pfed-mul", make_federation(), rounds=2, seed=0, folder=folder)
    for path in (folder / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(pf.DataError, match="there is no checkpoint that can be read; start the run anew"):
        pf.load(folder)


def test_only_the_last_checkpoints_are_kept(tmp_path):
    pf.simulate("pfed-mul", make_federation(), rounds=6, seed=0, folder=tmp_path / "run", keep=2)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["000005.json", "000005.safetensors", "000006.json", "000006.safetensors"]


def test_events_that_were_cut_off_are_noticed(tmp_path):
    folder = tmp_path / "run"
    pf.simulate("pfed-mul", make_federation(), rounds=2, seed=0, folder=folder)
    (folder / "events.jsonl").write_bytes(b"")
    what = "has 0 bytes, but the checkpoint was written when it had"
    with pytest.warns(UserWarning, match=what):
        run = pf.load(folder)
    run.client(run.clients[0])  # needs none
    for needs_them in (lambda: run.events, lambda: run.resume(3)):
        with pytest.raises(pf.DataError, match=what):
            needs_them()
