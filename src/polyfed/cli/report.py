"""`polyfed report`: one page about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.folders import reject_no_run
from polyfed.cli.output import emit, say
from polyfed.cli.reporting import report_room
from polyfed.errors import UsageError


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.", metavar="RUN...")],
    out: Annotated[
        Path | None, typer.Option(help="The file. By default report.html in the first folder.", metavar="FILE")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a self-contained HTML report of one run or several."""
    from polyfed.cli.documents import ReportDocument

    folders = [run for given in runs for run in _runs_in(given)]
    out = out or runs[0] / "report.html"
    if not out.parent.is_dir():
        raise UsageError("there is no such folder", where=str(out.parent), remedy="make it, or choose another --out")
    page = report_room().write_report(folders, out)
    if json:
        emit(ReportDocument(runs=[str(folder) for folder in folders], out=str(page)))
    else:
        say(f"The report is {page}")


def _runs_in(folder: Path) -> list[Path]:
    """The folder itself, or the runs in it, as `compare` leaves them."""
    inside = sorted(path.parent for path in folder.glob("*/run.json")) if folder.is_dir() else []
    if inside and not (folder / "run.json").exists():
        return inside
    reject_no_run(folder)
    return [folder]
