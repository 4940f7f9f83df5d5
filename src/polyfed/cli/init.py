"""`polyfed init`: a config file for a table, with guesses that are shown and can be corrected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.output import emit, say, show_table
from polyfed.errors import UsageError


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A table (CSV, Parquet, ...), a pattern, a folder with a file for each client, or a database's URL.",
            metavar="DATA",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")] = Path("polyfed.toml"),
    query: Annotated[
        str | None, typer.Option(help="What is read, if the data are a database: SELECT ...", metavar="SQL")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a commented config file for a table: guesses the client column and the kinds of the targets."""
    from polyfed.cli.documents import GuessDocument, InitDocument
    from polyfed.experiments.guessing import guess
    from polyfed.experiments.toml_text import config_text
    from polyfed.files import write_whole

    if out.exists():
        raise UsageError("is there already", where=str(out), remedy="remove it, or choose another --out")
    if not out.parent.is_dir():
        raise UsageError("there is no such folder", where=str(out.parent), remedy="make it, or choose another --out")
    found, remarks = guess(data, query)
    try:
        write_whole(out, config_text(found, data, out, query).encode())
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(out), remedy="choose another --out"
        ) from None
    if json:
        guesses = [GuessDocument(column=g.column, role=g.role, why=g.why) for g in found]
        client = next((g.column for g in found if g.role == "client"), None)
        emit(InitDocument(out=str(out), client=client, guesses=guesses, remarks=remarks))
        return
    show_table(
        f"What {data} seems to hold", ["column", "guess", "why"], [[g.column, g.role, g.why] for g in found], left=3
    )
    for remark in remarks:
        say(remark)
    say(f"Correct the guesses in {out}, then: polyfed run {out}")
