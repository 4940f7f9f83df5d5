"""`polyfed predict`: a table of predictions for new rows of clients; `polyfed join`: a client that was not there takes part in
what was learned, with no further round."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import (
    AllowCode,
    AsJson,
    Names,
    RunFolder,
    argument,
    load_run,
    option,
    reject_no_folder,
    write_out,
)
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, number, say
from polyfed.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from polyfed.cli.documents import UnseenDocument

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes
MOST_NAMED = 20  # categories that nobody knew


def predict(
    run: RunFolder,
    new: Annotated[Path, argument("A table with the features, with or without labels.", "NEW")],
    client: Annotated[
        str | None,
        option("Whose model predicts all rows. By default each row's own client, by the column of the run.", "NAME"),
    ] = None,
    tasks: Annotated[Names, option("Only these tasks.", "A,B")] = None,
    keep: Annotated[Names, option("Columns of the file to repeat beside the predictions.", "A,B")] = None,
    out: Annotated[Path | None, option("A .csv or .parquet file. By default CSV on stdout.", "FILE")] = None,
    level: Annotated[float, option("Probability of the intervals.")] = 0.95,
    allow_code: AllowCode = None,
    json: AsJson = False,
) -> None:
    """Predict new rows: means and intervals, labels and probabilities, and how far from training each row is."""
    from polyfed.cli.documents import PredictDocument
    from polyfed.data.schema.coding import unseen_message
    from polyfed.experiments.predicting import mean_scores, predict_table

    reject_odd_end(out)
    loaded = load_run(run, allow_code)
    found = predict_table(loaded, new, client, tasks=split_names(tasks), level=level, keep=split_names(keep) or ())
    if out is not None:
        write_table(found.table, out, found.kept)
    document = PredictDocument(
        run=str(run),
        client=next(iter(found.clients)) if len(found.clients) == 1 else None,
        clients=found.clients,
        rows=len(found.table),
        level=level,
        tasks=found.kinds,
        columns=list(found.table.columns),
        out=None if out is None else str(out),
        predictions=None if out is not None else {str(name): column.tolist() for name, column in found.table.items()},
        scores=mean_scores(found.scores),
        training_scores=mean_scores(found.training_scores),
        client_scores=found.scores,
        trained_on=found.trained_on,
        far=found.far,
        unseen=_unseen_document(found.unseen),
    )
    if json:
        return emit(document)
    report = note if out is None else say  # a table on stdout is for another program
    if out is None:
        typer.echo(as_csv(found.table, exact=found.kept), nl=False)
    for column, strange in found.unseen.items():
        report(unseen_message(column, strange))
    if document.far:
        report(f"{document.far} of {document.rows} rows are far from all that the model was trained on (notes, ood)")
    if document.trained_on:
        report(f"{document.trained_on} of {document.rows} rows were trained on, and are no measure of what is new")
    for scores, of, remark in (
        (document.scores, found.scores, ""),
        (document.training_scores, found.training_scores, ", rows that were trained on"),
    ):
        over = f", mean over {len(of)} clients" if len(of) > 1 else ""
        for task, metrics in scores.items():
            report(f"{task}{remark}{over}: {written(metrics)}")
    if out is not None:
        whose = document.client or f"{len(found.clients)} clients"
        say(f"{len(found.table)} rows of {whose} are predicted in {out}")


def join(
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
        unseen = _unseen_document(unseen_in(loaded, name, table))
        counts = {"rows": len(own.x), "labels": own.counts(), "test_rows": n_test}
        return emit(JoinDocument(run=str(run), client=name, updated=update, scores=scores, unseen=unseen, **counts))
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


def _unseen_document(unseen: Mapping[str, Mapping[str, int]]) -> dict[str, UnseenDocument]:
    from polyfed.cli.documents import UnseenDocument

    return {
        column: UnseenDocument(rows=sum(strange.values()), categories=list(strange)[:MOST_NAMED])
        for column, strange in unseen.items()
    }


def as_csv(table: pd.DataFrame, exact: Collection[str] = ()) -> str:
    """The table as CSV, its numbers with six digits but for the columns that are to be `exact`.

    A spreadsheet would run a text that begins a formula (class labels are whatever a client called them): such a text, which is
    no number, gets a ' before it, as spreadsheets themselves mark a text.
    """
    safe = table.rename(columns=_harmless)
    unchanged, cells = {_harmless(name) for name in exact}, list(safe.columns)
    for name, column in safe.items():
        if column.dtype.kind == "f" and name not in unchanged:
            safe[name] = significant(column.to_numpy())
        elif column.dtype.kind == "O":
            safe[name] = column.map(_harmless)
            cells += list(safe[name])
    # A bare carriage return would end the row, and what follows it begin a cell.
    returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)


def significant(values: np.ndarray, digits: int = 6) -> np.ndarray:
    """Numbers rounded to the digits that matter.

    >>> import numpy as np
    >>> significant(np.array([123456.789, -0.00123456789, 0.0, np.nan])).tolist()
    [123457.0, -0.00123457, 0.0, nan]
    """
    import numpy as np

    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()], dtype=np.float64)


def _harmless(cell: object) -> object:
    from polyfed.data.features.matrix import reads_as_number

    is_formula = isinstance(cell, str) and cell.startswith(FORMULA) and not reads_as_number(cell)
    return f"'{cell}" if is_formula else cell


def written(scores: dict[str, float | None]) -> str:
    return ", ".join(f"{metric} {number(value)}" for metric, value in scores.items())


def reject_odd_end(out: Path | None) -> None:
    """An error about a file that is to become a table and cannot."""
    if out is None:
        return
    if out.suffix.lower() not in (".csv", ".parquet"):
        what = "is not a kind of table that can be written"
        raise UsageError(what, where=out, remedy="end it in .csv or .parquet")
    reject_no_folder(out)


def write_table(table: pd.DataFrame, out: Path, exact: Collection[str] = (), choose: str = "--out") -> None:
    if out.suffix.lower() == ".csv":
        content = as_csv(table, exact).encode()
    else:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        content = buffer.getvalue()
    write_out(out, content, choose)
