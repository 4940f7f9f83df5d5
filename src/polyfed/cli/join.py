"""`polyfed join`: a client that was not there takes part in what was learned, with no further round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.folders import load_run
from polyfed.cli.output import emit, say
from polyfed.errors import UsageError


def command(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    new_client: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with the client's rows.", metavar="NEW_CLIENT")
    ],
    name: Annotated[str, typer.Option(help="What the client is called.", metavar="NAME")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Add a client to a run without a round; predict --client NAME then uses its model."""
    from polyfed.cli.documents import JoinDocument
    from polyfed.experiments.predicting import client_table

    if not name.strip():
        raise UsageError("a client without a name cannot join", where="--name", remedy="give it one")
    loaded = load_run(run)
    loaded.join(name, client_table(loaded, new_client))
    loaded.save(run)
    assert loaded.guests is not None
    own = loaded.guests.clients[name].train
    if json:
        emit(JoinDocument(run=str(run), client=name, rows=len(own.x), labels=own.counts()))
        return
    labels = ", ".join(f"{n} of {task}" for task, n in own.counts().items())
    say(f"{name} joined {run} with {len(own.x)} rows; labels: {labels}")
