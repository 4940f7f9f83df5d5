"""`polyfed predict`: a table of predictions for new rows of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyfed.cli.folders import load_run
from polyfed.cli.options import split_names
from polyfed.cli.output import emit, note, number, say
from polyfed.errors import UsageError


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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Predict new rows: means and intervals, labels and probabilities, and how foreign each row is."""
    from polyfed.cli.documents import PredictDocument
    from polyfed.experiments.predicting import predict_table

    _refuse_odd_end(out)
    loaded = load_run(run)
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
    )
    if json:
        emit(document)
        return
    tell = note if out is None else say  # a table on stdout is for another program
    if out is None:
        typer.echo(found.table.to_csv(index=False), nl=False)
    for task, scores in found.scores.items():
        tell(f"{task}: {', '.join(f'{metric} {number(value)}' for metric, value in scores.items())}")
    if out is not None:
        say(f"{len(found.table)} rows of {client} are predicted in {out}")


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
        content = table.to_csv(index=False).encode()
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
