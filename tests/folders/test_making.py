"""Folders that a killed start left half-made are begun again; those with anything else in them are not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import polyfed as pf
from federations import make_federation
from folder_files import contents
from polyfed.cli import main
from polyfed.folders.lock import owned
from polyfed.folders.making import is_free, is_half_made

# Killed when the n-th of these functions is called: before each file of a folder that is being made.
KILLED = """
import os, signal, sys
from polyfed.folders import writing
from polyfed import files
left = int(sys.argv[1])
def kill_at(*arguments, write=files.write_whole):
    global left
    left -= 1
    if left == 0:
        (arguments[0].parent / f".{arguments[0].name}.12345678.part").write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments)
writing.write_whole = kill_at
from polyfed.cli import main
sys.exit(main(sys.argv[2:]))
"""
COMPARE = ["compare", "--dataset", "synthetic", "--methods", "local", "--rounds", "1", "--no-report", "--quiet"]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_compare_goes_on_after_a_kill_while_a_cell_is_made(tmp_path, n, capsys):
    argv = [*COMPARE, "--out", str(tmp_path / "all")]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(n), *argv], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    cell = tmp_path / "all" / "local-0"
    assert not (cell / "run.json").exists()
    assert list(cell.rglob("*.part"))
    assert is_half_made(cell) == (n > 1)
    assert main(argv) == 0, capsys.readouterr().err
    assert pf.load(cell).federation_state.round == 1
    left = [path.name for path in cell.rglob("*") if path.name.startswith(".")]
    assert left == []  # no mark, no lock, and nothing half-written


def test_a_start_from_python_begins_again_too(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".making", "events.jsonl", "prepared.json"):
        (folder / name).write_bytes(b"left")
    pf.simulate("pfed-mul", make_federation(), rounds=1, folder=folder)
    assert pf.load(folder).federation_state.round == 1
    assert not (folder / ".making").exists()


def test_what_is_not_ours_stays(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_bytes(b"a user's own")
    argv = ["run", "--dataset", "synthetic", "--rounds", "1", "--out", str(folder), "--quiet"]
    assert main(argv) == 2
    assert f"error: {folder}: is not empty; choose a new folder with --out." in capsys.readouterr().err
    assert contents(folder) == {"config.toml": b"a user's own"}
    (folder / ".making").touch()
    (folder / "thesis.txt").write_bytes(b"years of work")
    with owned(folder):
        pass
    assert contents(folder) == {"thesis.txt": b"years of work"}
    assert not is_free(folder)


def test_a_whole_folder_with_its_mark_is_whole(folder):
    """Killed between the last file and the removal of the mark."""
    (folder / ".making").touch()
    assert not is_half_made(folder)
    pf.load(folder).resume(4)
    assert pf.load(folder).federation_state.round == 4


def test_what_somebody_is_writing_now_stays(folder, monkeypatch):
    from polyfed import files

    parts: list[Path] = []

    def look(*_):
        parts.extend(folder.glob(".*.part"))
        subprocess.run([sys.executable, "-c", DROP, str(folder)], check=True)  # another process tidies up

    (folder / ".old.json.abcd1234.part").write_bytes(b"of a process that was killed")
    monkeypatch.setattr(os, "fsync", look)
    files.write_whole(folder / "new.json", b"whole")
    assert (folder / "new.json").read_bytes() == b"whole"
    assert len(parts) == 2
    assert not list(folder.glob(".*.part"))


DROP = "import sys; from pathlib import Path; from polyfed.files import drop_parts; drop_parts(Path(sys.argv[1]))"
