"""`polyfed join`: a client that was not there takes part in what was learned, with no further round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.folders import AllowCode, load_run
from polyfed.cli.output import emit, say
from polyfed.cli.predict import unseen_document
from polyfed.errors import UsageError


def command(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    new_client: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with the client's rows.", metavar="NEW_CLIENT")
    ],
    name: Annotated[str, typer.Option(help="What the client is called.", metavar="NAME")],
    allow_code: AllowCode = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Add a client to a run without a round; predict --client NAME then uses its model."""
    from polyfed.cli.documents import JoinDocument
    from polyfed.experiments.predicting import client_table, unseen_in

    if not name.strip():
        raise UsageError("a client without a name cannot join", where="--name", remedy="give it one")
    loaded = load_run(run, allow_code)
    table = client_table(loaded, new_client)
    loaded.join(name, table)
    loaded.save(run)
    assert loaded.guests is not None
    own = loaded.guests.clients[name].train
    if json:
        unseen = unseen_document(unseen_in(loaded, name, table))
        emit(JoinDocument(run=str(run), client=name, rows=len(own.x), labels=own.counts(), unseen=unseen))
        return
    if not own.n_labels:
        say(f"{name} joined {run} with {len(own.x)} rows and no label: it is served by what the others have learned")
        return
    labels = ", ".join(f"{n} of {task}" for task, n in own.counts().items())
    say(f"{name} joined {run} with {len(own.x)} rows; labels: {labels}")
