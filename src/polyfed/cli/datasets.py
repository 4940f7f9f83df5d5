"""`polyfed datasets`: data to begin with."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from polyfed.cli.output import emit, show_table


def command(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List the data sets that polyfed brings, for run --dataset NAME."""
    from polyfed.cli.documents import DatasetsDocument, EntryDocument, OptionDocument
    from polyfed.data.datasets import DATASETS

    entries = [
        EntryDocument(
            name=name,
            summary=(inspect.getdoc(made) or "").partition("\n")[0],
            options=[
                OptionDocument(name=option.name, default=option.default, help="")
                for option in inspect.signature(made).parameters.values()
            ],
        )
        for name, made in DATASETS.items()
    ]
    if json:
        emit(DatasetsDocument(datasets=entries))
        return
    rows = [[e.name, e.summary, ", ".join(f"{o.name}={o.default}" for o in e.options)] for e in entries]
    show_table("Data sets", ["name", "what it is", "options (--set data.options.NAME=...)"], rows, left=3)
