"""`polyfed report` and `polyfed watch`: one page about runs. The report room is loaded when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from polyfed.cli.arguments import (
    AsJson,
    argument,
    option,
    reject_no_folder,
    reject_no_run,
)
from polyfed.cli.output import emit, note, say
from polyfed.errors import DataError, MissingExtraError


def report(
    runs: Annotated[list[Path], argument("Run folders, or folders of them.", "RUN...")],
    out: Annotated[Path | None, option("The file. By default report.html in the first folder.", "FILE")] = None,
    json: AsJson = False,
) -> None:
    """Write a self-contained HTML report of one run or several."""
    from polyfed.cli.documents import ReportDocument

    folders: list[Path] = []
    for given in runs:  # the folder itself, or the runs in it, as `compare` leaves them
        inside = sorted(path.parent for path in given.glob("*/run.json")) if given.is_dir() else []
        if not inside or (given / "run.json").exists():
            reject_no_run(given)
            inside = [given]
        folders += inside
    out = out or runs[0] / "report.html"
    reject_no_folder(out)
    page = _report_room().write_report(folders, out)
    if json:
        emit(ReportDocument(runs=[str(folder) for folder in folders], out=str(page)))
    else:
        say(f"The report is {page}")


def watch(
    run: Annotated[Path, argument("Folder of the run; it may be about to begin.", "RUN")],
    port: Annotated[int, option("Port of the page on this machine; 0 for any that is free.", min=0, max=65535)] = 8765,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document when the page is there.")] = False,
) -> None:
    """Show a run live in the browser, until Ctrl-C."""
    if run.is_file():
        raise DataError("is a file, not the folder of a run", where=run, remedy="give the folder of a run")

    def ready(url: str) -> None:
        from polyfed.cli.documents import WatchDocument

        if json:
            emit(WatchDocument(run=str(run), url=url))
        else:
            say(f"{run} is shown at {url} (Ctrl-C ends it)")

    _report_room().serve(run, port, on_ready=ready)


def try_report(folders: Sequence[Path], out: Path, **more: object) -> Path | None:
    """The report, or a line that says why there is none: the run itself is safe."""
    try:
        return _report_room().write_report(list(folders), out, **more)
    except Exception as error:
        note(f"warning: no report was written: {' '.join(str(error).split())}")
        return None


def _report_room() -> ModuleType:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module("polyfed.report")
    except ImportError as error:
        what = f"reports need {error.name or 'a package'}, which is not installed"
        raise MissingExtraError(what, remedy=f"pip install {error.name or 'polyfed'}") from None
