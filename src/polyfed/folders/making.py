"""Folders that are being made. `.making` is there from the first file on until `run.json` says that all are there.

A start that was killed in between left a folder that holds nothing worth keeping: the next one begins it again.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from polyfed.files import PART
from polyfed.folders.writing import write

MARK = ".making"
LOCKS = (".lock", ".late_clients.lock")
# All that a start writes; whatever else lies there is not ours to remove.
FILES = (
    *("config.toml", "flower.json", "run.log", "prepared.json", "prepared.safetensors"),
    *("events.jsonl", "timing.jsonl"),
)
FOLDERS = ("checkpoints", "states", "flower")


def begin(folder: Path) -> None:
    if not (folder / MARK).exists():
        write(folder / MARK, b"")


def end(folder: Path) -> None:
    (folder / MARK).unlink(missing_ok=True)


def is_half_made(folder: Path) -> bool:
    """Whether a start was killed before the folder held a run, its own or that of a server below it."""
    made = (folder / "run.json").exists() or (folder / "flower" / "server" / "run.json").exists()
    return (folder / MARK).is_file() and not made


def is_free(folder: Path) -> bool:
    """Whether a run can begin there: the folder is not there, is empty, or is half-made."""
    if not folder.exists() or is_half_made(folder):
        return True
    return all(path.name in LOCKS or path.name.endswith(PART) for path in folder.iterdir())


def drop_half_made(folder: Path) -> None:
    """Remove what a killed start left; its owner alone may call this."""
    if not is_half_made(folder):
        return
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in FILES:
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    end(folder)
