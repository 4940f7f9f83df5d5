"""One writer for each run folder, and readers that disturb nobody."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import polyfed as pf
from federations import make_federation
from folder_files import NEW_CLIENT, NEW_ROWS, contents
from polyfed.cli import main
from polyfed.engine import run as run_module
from polyfed.engine.rounds import run_round
from polyfed.errors import UsageError
from polyfed.folders.lock import LATE_CLIENTS_LOCK, RUN_LOCK, owned, owner_alive
from polyfed.report.folders import read_run

HOLDER = """
import sys, time
from pathlib import Path
from polyfed.folders.lock import owned
with owned(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(120)
"""
AT_WORK = r"process {pid} has been at work on it since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d; wait until it ends, or end it"


@pytest.fixture
def holder(folder):
    """Another process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_process_is_told_of_the_first(folder, holder, tmp_path, capsys):
    before = contents(folder)
    busy = AT_WORK.format(pid=holder.pid)
    run = pf.load(folder)
    for go_on in (
        lambda: run.resume(4),
        lambda: pf.simulate(
            "pfed-mul", make_federation(), rounds=4, scheme="K", evaluate_every=1, folder=folder, resume=True
        ),
        lambda: pf.simulate("pfed-mul", make_federation(), rounds=1).save(folder),
    ):
        with pytest.raises(UsageError, match=busy):
            go_on()
    assert main(["run", "--resume", str(folder), "--rounds", "4", "--quiet"]) == 2
    assert f"error: {folder}: process {holder.pid} has been at work on it since" in capsys.readouterr().err
    assert contents(folder) == before  # the lock of the other among them


def test_readers_and_a_client_that_joins_need_no_lock(folder, holder):
    run = pf.load(folder)
    run.client("late").predict(NEW_ROWS)
    assert read_run(folder).history.round == 3
    run.join("later", NEW_CLIENT)
    run.save(folder)
    assert pf.load(folder).clients[-2:] == ["late", "later"]


def test_the_lock_goes_with_its_owner(folder, holder):
    assert owner_alive(folder)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (folder / RUN_LOCK).is_file()  # what is left of it keeps nobody out
    assert not owner_alive(folder)
    pf.load(folder).resume(4)
    assert not (folder / RUN_LOCK).exists()


def test_threads_are_kept_apart_and_one_may_enter_twice(folder):
    with_path_in_errors = []

    def other() -> None:
        try:
            with owned(folder):
                with_path_in_errors.append("entered")
        except UsageError as error:
            with_path_in_errors.append(str(error))

    with owned(folder), owned(folder / ".." / folder.name):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert f"process {os.getpid()} has been at work" in with_path_in_errors[0]
    other()
    assert with_path_in_errors[1] == "entered"


def test_a_lock_whose_folder_was_made_anew_is_not_the_lock(folder):
    """Between opening and holding the file, its owner may have ended: then another file is the lock."""
    from polyfed.files import is_at

    descriptor = os.open(folder / RUN_LOCK, os.O_RDWR | os.O_CREAT)
    (folder / RUN_LOCK).unlink()
    assert not is_at(descriptor, folder / RUN_LOCK)
    (folder / RUN_LOCK).touch()
    assert not is_at(descriptor, folder / RUN_LOCK)
    os.close(descriptor)


def test_an_odd_lock_file_keeps_nobody_out(folder):
    for content in (b"", b"[" * 100_000, b'{"pid": -1}', b'{"pid": 1e400}', b"\xff"):
        (folder / RUN_LOCK).write_bytes(content)
        assert not owner_alive(folder)
        with owned(folder):
            assert owner_alive(folder)


def test_a_run_goes_on_from_what_others_did_since(folder):
    mine = pf.load(folder)
    pf.load(folder).resume(5)
    mine.resume(6)
    rounds = [event["round"] for event in mine.events if event["event"] == "round"]
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert pf.load(folder).events == mine.events


def test_two_that_join_at_once_both_do(folder):
    first, second = pf.load(folder), pf.load(folder)
    first.join("a", NEW_CLIENT)
    second.join("b", NEW_CLIENT)
    first.save(folder)
    second.save(folder)
    found = pf.load(folder)
    assert list(found.late_states) == ["late", "a", "b"]
    assert second.clients == found.clients
    third = pf.load(folder)
    third.join("c", NEW_CLIENT)
    found.join("c", NEW_CLIENT)
    found.save(folder)
    with pytest.raises(pf.DataError, match="client 'c' is there already"):
        third.save(folder)
    assert len(list(folder.glob("late_clients*.safetensors"))) == 1  # those of before are gone
    expected = first.client("a").predict(NEW_ROWS)["height"].mean
    assert pf.load(folder).client("a").predict(NEW_ROWS)["height"].mean.tolist() == expected.tolist()
    assert not (folder / LATE_CLIENTS_LOCK).exists()


def test_loading_writes_nothing(folder):
    """Also what a killed run appended after its last checkpoint stays: it is left out in memory."""
    events = pf.load(folder).events
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "round", "round": 4, "sam')
    (folder / "checkpoints" / "000003.json").write_bytes(b"{")
    before = contents(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.warns(UserWarning, match="Using the checkpoint before"):
        run = pf.load(folder)
    run.client("client 0").predict(NEW_ROWS)
    assert (run.federation_state.round, run.events) == (2, [event for event in events if event.get("round", 0) < 3])
    assert read_run(folder).history.round == 2
    assert contents(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times
    with pytest.warns(UserWarning, match="Using the checkpoint before"):
        assert pf.load(folder).resume().events == events
    assert (folder / "events.jsonl").read_bytes() != before["events.jsonl"]  # a resume may cut


@pytest.mark.slow
def test_sixty_rounds_while_others_load_predict_and_join(tmp_path):
    """As undisturbed, to the last byte; and whatever a reader sees is one round."""
    options = {"seed": 0, "sample": 3, "scheme": "K", "evaluate_every": 3}
    pf.simulate("pfed-mul", make_federation(), rounds=60, folder=tmp_path / "a", **options)
    seen, failures, over = set[int](), list[BaseException](), threading.Event()

    def read() -> None:
        rng = random.Random(0)
        try:
            for i in range(1000):
                if over.is_set():
                    break
                time.sleep(rng.uniform(0, 0.05))
                if not (tmp_path / "b" / "run.json").is_file():
                    continue
                run = pf.load(tmp_path / "b")
                rounds = [event["round"] for event in run.events if event["event"] == "round"]
                assert rounds == list(range(1, run.federation_state.round + 1))
                shown = read_run(tmp_path / "b").history
                assert [one.round for one in shown.rounds] == list(range(1, shown.round + 1))
                seen.add(run.federation_state.round)
                if i % 5 == 0:
                    run.client("client 0").predict(NEW_ROWS)
                if i % 10 == 0:
                    run.join(f"late_client {i}", NEW_CLIENT)
                    run.save(tmp_path / "b")
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=read)
        thread.start()
        try:
            pf.simulate("pfed-mul", make_federation(), rounds=60, folder=tmp_path / "b", **options)
        finally:
            over.set()
            thread.join()
    assert failures == []
    assert len(seen) > 3
    assert (tmp_path / "b" / "events.jsonl").read_bytes() == (tmp_path / "a" / "events.jsonl").read_bytes()
    last = "checkpoints/000060.safetensors"
    assert (tmp_path / "b" / last).read_bytes() == (tmp_path / "a" / last).read_bytes()
    assert pf.load(tmp_path / "b").late_states


def _rivals(argv, monkeypatch):
    """Where the same command ends that another process starts in the first round, in a list that it fills."""
    ended = []

    def run_and_meet(*arguments):
        if not ended:
            code = "import sys; from polyfed.cli import main; sys.exit(main(sys.argv[1:]))"
            ended.append(subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True))
        return run_round(*arguments)

    monkeypatch.setattr(run_module, "run_round", run_and_meet)
    return ended


def test_a_second_start_in_a_new_folder_leaves_the_first_alone(tmp_path, monkeypatch, capsys):
    """The loser of the race must not take the winner's folder with it when it is rejected."""
    argv = ["run", "--dataset", "synthetic", "--rounds", "2", "--out", str(tmp_path / "runs" / "a"), "--quiet"]
    rejected = _rivals(argv, monkeypatch)
    assert main([*argv, "--no-report"]) == 0, capsys.readouterr().err
    assert rejected[0].returncode == 2
    assert "there is a run in it already" in rejected[0].stderr or "at work on it" in rejected[0].stderr
    assert pf.load(tmp_path / "runs" / "a").federation_state.round == 2


def test_a_second_resume_ends_with_two_and_every_round_is_run_once(folder, monkeypatch, capsys):
    argv = ["run", "--resume", str(folder), "--rounds", "6", "--quiet", "--no-report"]
    rejected = _rivals(argv, monkeypatch)
    assert main(argv) == 0, capsys.readouterr().err
    assert rejected[0].returncode == 2
    assert f"error: {folder}: process {os.getpid()} has been at work on it since" in rejected[0].stderr
    rounds = [event["round"] for event in pf.load(folder).events if event["event"] == "round"]
    assert rounds == [1, 2, 3, 4, 5, 6]


def test_the_server_of_a_deployment_holds_its_folder(folder, holder: subprocess.Popen, tmp_path: Path):
    pytest.importorskip("flwr")
    from polyfed.experiments.reading import check
    from polyfed.flower.serving import ServeConfig, serve

    config = check({"data": {"tasks": [{"name": "y"}]}}, "test")
    with pytest.raises(UsageError, match=AT_WORK.format(pid=holder.pid)):
        serve(None, ServeConfig(config, folder))  # pyright: ignore[reportArgumentType]
