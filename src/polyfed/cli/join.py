"""`polyfed join`: a client that was not there takes part in what was learned, with no further round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.arguments import AllowCode, AsJson, RunFolder, argument, load_run, option
from polyfed.cli.output import emit, say
from polyfed.cli.predict import unseen_document, written
from polyfed.errors import UsageError


def command(
    run: RunFolder,
    new_client: Annotated[Path, argument("A table with the client's rows.", "NEW_CLIENT")],
    name: Annotated[str, option("What the client is called.", "NAME")],
    test_fraction: Annotated[float, option("Share of its rows to hold out and to measure on.", "SHARE")] = 0.0,
    update: Annotated[bool, typer.Option("--update", help="Replace the data of a client that joined before.")] = False,
    allow_code: AllowCode = None,
    json: AsJson = False,
) -> None:
    """Add a client to a run without a round; predict --client NAME then uses its model."""
    from polyfed.cli.documents import JoinDocument
    from polyfed.experiments.predicting import client_table, held_out_scores, unseen_in

    if not name.strip():
        raise UsageError("a client without a name cannot join", where="--name", remedy="give it one")
    loaded = load_run(run, allow_code)
    table = client_table(loaded, new_client)
    loaded.join(name, table, test=test_fraction, update=update)
    scores = held_out_scores(loaded, name)
    loaded.save(run)
    assert loaded.late_clients is not None
    parts = loaded.late_clients.clients[name]
    own, n_test = parts.train, len(parts.test.x)
    if json:
        emit(
            JoinDocument(
                run=str(run),
                client=name,
                rows=len(own.x),
                labels=own.counts(),
                updated=update,
                test_rows=n_test,
                scores=scores,
                unseen=unseen_document(unseen_in(loaded, name, table)),
            )
        )
        return
    did = f"{name} is updated in {run}" if update else f"{name} joined {run}"
    if not own.n_labels:
        say(f"{did} with {len(own.x)} rows and no label: it is served by what the others have learned")
        return
    labels = ", ".join(f"{n} of {task}" for task, n in own.counts().items())
    say(f"{did} with {len(own.x)} rows; labels: {labels}")
    for task, metrics in scores.items():
        say(f"{task}, {n_test} rows held out: {written(metrics)}")
    if not n_test:
        say("No row was held out to measure on: --test-fraction 0.2 would")
