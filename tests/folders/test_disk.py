"""Full disks are told in a sentence, and nobody but its owner can look into a run."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys

import pytest

import polyfed as pf
from federations import make_federation
from folder_files import NEW_CLIENT
from polyfed.cli import main
from polyfed.errors import UsageError

FULL = "cannot be written: No space left on device; make room there; what was stored until now can be resumed"


@pytest.fixture
def full_after(monkeypatch):
    """A disk on which so many more files can be written."""

    def fill(left: int) -> None:
        really, n = os.fsync, [left]

        def fsync(descriptor: int) -> None:
            n[0] -= 1
            if n[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            really(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


@pytest.mark.parametrize("left", range(6))
def test_a_disk_that_is_full_while_a_run_goes_on(folder, tmp_path, full_after, monkeypatch, left):
    expected = pf.load(shutil.copytree(folder, tmp_path / "other")).resume(5).events
    run = pf.load(folder)
    with monkeypatch.context():
        full_after(left)
        with pytest.raises(UsageError, match=FULL) as caught:
            run.resume(5)
    monkeypatch.undo()
    assert caught.value.where.startswith(str(folder))
    assert run.resume(5).events == expected  # in the same process, once there is room
    assert pf.load(folder).events == expected


def test_a_full_disk_on_the_command_line(folder, full_after, capsys, tmp_path):
    full_after(1)
    assert main(["run", "--resume", str(folder), "--rounds", "5", "--quiet"]) == 2
    with_path_in_errors = capsys.readouterr().err
    assert with_path_in_errors.count("\n") == 1
    assert FULL in with_path_in_errors
    assert main(["run", "--dataset", "synthetic", "--rounds", "1", "--out", str(tmp_path / "new"), "--quiet"]) == 2
    assert FULL in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_full_disk_while_a_client_joins(folder, full_after, monkeypatch):
    run = pf.load(folder)
    run.join("new", NEW_CLIENT)
    with monkeypatch.context():
        full_after(1)
        with pytest.raises(UsageError, match=FULL):
            run.save(folder)
    monkeypatch.undo()
    assert list(pf.load(folder).late_states) == ["late"]
    run.save(folder)
    assert list(pf.load(folder).late_states) == ["late", "new"]
    assert len(list(folder.glob("late_clients-*"))) == 1


@pytest.mark.slow
def test_a_limit_of_the_system_is_a_sentence(folder):
    """No pretence: a process that may not write large files."""
    size = (folder / "events.jsonl").stat().st_size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))

    code = "import sys; from polyfed.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "run", "--resume", str(folder), "--rounds", "5", "--quiet", "--no-report"]
    done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 2
    assert "events.jsonl: cannot be written: File too large; make room there" in done.stderr
    assert pf.load(folder).resume(5).federation_state.round == 5


def test_what_was_left_half_written_goes_when_a_run_goes_on(folder):
    left = [folder / ".prepared.safetensors.abcd1234.part", folder / "checkpoints" / ".000003.json.x.part"]
    for path in left:
        path.write_bytes(b"rows of patients")
    pf.load(folder).client("client 0").predict([[0.5, 0.5]])
    assert all(path.exists() for path in left)  # who reads removes nothing
    pf.load(folder).resume(4)
    assert not any(path.exists() for path in left)


def test_a_pipe_in_the_place_of_a_file_stops_nobody_for_ever(folder):
    os.mkfifo(folder / "run.log")
    assert main(["run", "--resume", str(folder), "--rounds", "4", "--quiet", "--no-report"]) == 0
    (folder / "timing.jsonl").unlink()
    os.mkfifo(folder / "timing.jsonl")
    with pytest.raises(UsageError, match=r"timing\.jsonl: cannot be written: No such device or address"):
        pf.load(folder).resume(5)


def modes(folder):
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_runs_are_private_and_reports_are_shown(tmp_path):
    before = os.umask(0o022)
    try:
        (tmp_path / "there").mkdir()
        argv = ["--dataset", "synthetic", "--rounds", "1", "--quiet"]
        for name, more in (("new/run", []), ("there", []), ("flower", ["--engine", "flower-sim"])):
            folder = tmp_path / name
            assert main(["run", *argv, "--out", str(folder), *more]) == 0
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE((folder / "checkpoints").stat().st_mode) == 0o700
            assert stat.S_IMODE((folder / "report.html").stat().st_mode) == 0o644
            (folder / "report.html").unlink()
            assert modes(folder) == {0o600}
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755  # not ours to close
        run = pf.simulate("pfed-mul", make_federation(), rounds=1)
        run.join("late", NEW_CLIENT)
        run.save(tmp_path / "saved")
        assert modes(tmp_path / "saved") == {0o600}
    finally:
        os.umask(before)
