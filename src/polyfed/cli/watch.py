"""`polyfed watch`: the figures of a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.output import emit, say
from polyfed.cli.reporting import report_room
from polyfed.errors import DataError


def command(
    run: Annotated[Path, typer.Argument(help="Folder of the run; it may be about to begin.", metavar="RUN")],
    port: Annotated[
        int, typer.Option(help="Port of the page on this machine; 0 for any that is free.", min=0, max=65535)
    ] = 8765,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document when the page is there.")] = False,
) -> None:
    """Show a run live in the browser, until Ctrl-C."""
    if run.is_file():
        raise DataError("is a file, not the folder of a run", where=str(run), remedy="give the folder of a run")

    def ready(url: str) -> None:
        from polyfed.cli.documents import WatchDocument

        if json:
            emit(WatchDocument(run=str(run), url=url))
        else:
            say(f"{run} is shown at {url} (Ctrl-C ends it)")

    report_room().serve(run, port, on_ready=ready)
