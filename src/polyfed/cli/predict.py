"""`polyfed predict`: a table of predictions for new rows of a client."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from polyfed.cli.folders import AllowCode, load_run
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, number, say
from polyfed.errors import UsageError

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes
MOST_NAMED = 20  # categories that nobody knew


def command(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    new: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with the features, with or without labels.", metavar="NEW")
    ],
    client: Annotated[str | None, typer.Option(help="Whose model predicts.", metavar="NAME")] = None,
    tasks: Annotated[list[str] | None, typer.Option(help="Only these tasks.", metavar="A,B")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file. By default CSV on stdout.", metavar="FILE")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    allow_code: AllowCode = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Predict new rows: means and intervals, labels and probabilities, and how foreign each row is."""
    from polyfed.cli.documents import PredictDocument
    from polyfed.data.encoder import told_unseen
    from polyfed.experiments.predicting import predict_table

    _refuse_odd_end(out)
    loaded = load_run(run, allow_code)
    if client is None:
        if len(loaded.clients) > 1:
            known = ", ".join(loaded.clients[:10]) + (", ..." if len(loaded.clients) > 10 else "")
            raise UsageError("it is not said whose model is to predict", remedy=f"give --client with one of {known}")
        client = [*loaded.clients, *loaded.study.spec.clients][0]
    found = predict_table(loaded, new, client, tasks=split_names(tasks), level=level)
    if out is not None:
        _write(found.table, out)
    document = PredictDocument(
        run=str(run),
        client=client,
        rows=len(found.table),
        level=level,
        tasks=found.kinds,
        columns=list(found.table.columns),
        out=None if out is None else str(out),
        predictions=None if out is not None else {str(name): column.tolist() for name, column in found.table.items()},
        scores=found.scores,
        training_scores=found.training_scores,
        trained_on=int(found.trained_on.sum()),
        unseen=unseen_document(found.unseen),
    )
    if json:
        emit(document)
        return
    tell = note if out is None else say  # a table on stdout is for another program
    if out is None:
        typer.echo(as_csv(found.table), nl=False)
    for column, strange in found.unseen.items():
        tell(told_unseen(column, strange))
    if document.trained_on:
        tell(f"{document.trained_on} of {document.rows} rows were trained on, and are no measure of what is new")
    for task, scores in found.scores.items():
        tell(f"{task}: {_written(scores)}")
    for task, scores in found.training_scores.items():
        tell(f"{task}, rows that were trained on: {_written(scores)}")
    if out is not None:
        say(f"{len(found.table)} rows of {client} are predicted in {out}")


def unseen_document(unseen: dict[str, dict[str, int]]) -> Any:
    """Categories that training did not know, as the JSON documents tell them."""
    from polyfed.cli.documents import UnseenDocument

    return {
        column: UnseenDocument(rows=sum(strange.values()), categories=list(strange)[:MOST_NAMED])
        for column, strange in unseen.items()
    }


def as_csv(table: Any) -> str:
    """The table as CSV. A spreadsheet would run a text that begins a formula (class labels are whatever a client called
    them): such a text, which is no number, gets a ' before it, as spreadsheets themselves mark a text."""
    safe = table.rename(columns=_harmless)
    texts = [name for name in safe.columns if safe[name].dtype.kind == "O"]
    for name in texts:
        safe[name] = safe[name].map(_harmless)
    cells = [*safe.columns, *(cell for name in texts for cell in safe[name])]
    # A bare carriage return would end the row, and what follows it begin a cell.
    returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)


def _harmless(cell: Any) -> Any:
    from polyfed.data.features import reads_as_number

    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    return cell if reads_as_number(cell) else f"'{cell}"


def _written(scores: dict[str, float | None]) -> str:
    return ", ".join(f"{metric} {number(value)}" for metric, value in scores.items())


def _refuse_odd_end(out: Path | None) -> None:
    if out is None:
        return
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise UsageError(
            "is not a kind of table that can be written", where=str(out), remedy="end it in .csv or .parquet"
        )
    if not out.parent.is_dir():
        raise UsageError("there is no such folder", where=str(out.parent), remedy="make it, or choose another --out")


def _write(table: Any, out: Path) -> None:
    """The file whole or not at all."""
    import io

    from polyfed.files import write_whole

    if out.suffix.lower() == ".csv":
        content = as_csv(table).encode()
    else:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        content = buffer.getvalue()
    try:
        write_whole(out, content)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(out), remedy="choose another --out"
        ) from None
