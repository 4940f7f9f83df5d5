"""`polyfed demo`: penguins of nine colonies, three tasks, three methods, a table and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.comparison import run_comparison
from polyfed.cli.output import note

METHODS = ["pfed-mul", "pfed-st", "local"]
ROUNDS, QUICK_ROUNDS = 20, 4


def command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="A few rounds only.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs. By default runs/demo, or the next that is free.")
    ] = None,
    report: Annotated[bool, typer.Option(help="Write report.html at the end.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Weigh, sex and name penguins with three methods, and write a report."""
    from polyfed.experiments.reading import check

    if not json and not quiet:
        note(
            "Nine colonies of penguins weigh, sex and name their birds from three measurements.\n"
            "pfed-mul: one model of all tasks, its prior shared; pfed-st: each task alone; local: nothing shared."
        )
    document = {
        "data": {"dataset": "penguins"},
        "run": {"rounds": QUICK_ROUNDS if quick else ROUNDS},
        "compare": {"methods": METHODS, "seeds": [0]},
    }
    run_comparison(
        check(document, "demo"),
        out or _free(Path("runs/demo")),
        "demo",
        argv=context.obj["argv"],
        report=report,
        json=json,
        quiet=quiet,
        command="demo",
    )


def _free(folder: Path) -> Path:
    """The folder, or with a number that is not taken: a demo is run again and again."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
