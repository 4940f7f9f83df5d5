"""Run folders as users name them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from polyfed.engine import Run

AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        help="Run this code if the run or study names it as its network; may be given several times.",
        metavar="MODULE:FACTORY",
    ),
]


def reject_no_run(folder: Path) -> None:
    """An error unless there is a run in the folder."""
    if not folder.is_dir():
        what = "is a file, not the folder of a run" if folder.exists() else "there is no such folder"
        near = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        remedy = nearest(folder.name, sorted(near)[:20]) if near else "give the folder of a run"
        raise DataError(what, where=str(folder), remedy=remedy)
    if not (folder / "run.json").is_file():
        raise DataError("there is no run in it", where=str(folder), remedy="give the folder of a run")


def load_run(folder: Path, allow_code: list[str] | None = None) -> Run:
    """The run in a folder, as its last round left it."""
    reject_no_run(folder)
    from polyfed.engine import load

    run = load(folder, allow_code=allow_code or ())
    if not run.federation_state.server:  # of a node, before its first evaluation
        raise UsageError(
            "there is no model yet", where=str(folder), remedy="wait until the study evaluates its clients"
        )
    if run.federation_state.round == 0 and run.settings.rounds > 0:
        raise UsageError(
            "no round has been completed", where=str(folder), remedy=f"go on with: polyfed run --resume {folder}"
        )
    return run
