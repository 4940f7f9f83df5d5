"""`polyfed examples`: the tables of the documentation as files, so that its commands can be typed as they stand."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.output import say
from polyfed.errors import UsageError
from polyfed.files import SHOWN, write_whole

TABLES = {
    "hospitals.csv": "five made-up hospitals, three targets, gaps",
    "new_patients.csv": "new patients, to predict",
    "lugano.csv": "a hospital that joins later",
}


def content(name: str) -> bytes:
    """A table as the wheel brings it; in a clone it lies in `examples`."""
    brought = files("polyfed") / "examples" / name
    return brought.read_bytes() if brought.is_file() else (Path(__file__).parents[3] / "examples" / name).read_bytes()


def command(
    folder: Annotated[Path, typer.Argument(help="Where they are written.")] = Path("examples"),
) -> None:
    """Write the tables that the documentation uses into a folder."""
    for name in TABLES:
        path = folder / name
        if path.exists() and (not path.is_file() or path.read_bytes() != content(name)):
            raise UsageError("another file of this name is there", where=str(path), remedy="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in TABLES.items():
        write_whole(folder / name, content(name), SHOWN)
        say(f"{folder / name}: {what}")
