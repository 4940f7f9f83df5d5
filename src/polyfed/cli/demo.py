"""`polyfed demo`: what a federation buys where labels are few, on nine colonies of penguins."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import AsJson, Quiet, WriteReport, option
from polyfed.cli.compare import run_comparison
from polyfed.cli.compared import say_where
from polyfed.cli.output import note, number, show_table

if TYPE_CHECKING:
    from polyfed.cli.documents import CompareDocument
    from polyfed.experiments.tuning import Choice

METHODS = ["local", "fedavg", "pfed-hier"]
ROUNDS, QUICK_ROUNDS = 25, 4
LABELLED = 5


def command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="A few rounds only.")] = False,
    out: Annotated[Path | None, option("Folder of the runs. By default runs/demo, or the next that is free.")] = None,
    report: WriteReport = True,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Weigh, sex and name penguins from a few labelled birds with three methods, and write a report."""
    from polyfed.data.datasets.penguins import SILENT, UNSEXED
    from polyfed.experiments.reading import check

    if not json and not quiet:
        note(
            f"Nine colonies of penguins weigh, sex and name their birds from three measurements, {LABELLED} birds labelled in "
            f"each.\n{UNSEXED} has never sexed a bird, {SILENT} has labelled none at all.\n"
            "local: nothing shared; fedavg: one network for all; pfed-hier: shared functions and a personal part."
        )
    document = {
        "data": {"dataset": "penguins", "options": {"labelled": LABELLED}},
        "run": {"rounds": QUICK_ROUNDS if quick else ROUNDS},
        "compare": {"methods": METHODS, "seeds": [0]},
    }
    numbered = (Path(f"runs/demo-{i}") for i in count(2))  # a demo is run again and again
    run_comparison(
        check(document, "demo"),
        out or next(free for free in chain([Path("runs/demo")], numbered) if not free.exists()),
        "demo",
        argv=context.obj["argv"],
        report=report,
        json=json,
        quiet=quiet,
        command="demo",
        table=_show,
    )


def _show(document: CompareDocument, choices: Mapping[str, Choice]) -> None:
    """What each method gains, by what a colony lacks."""
    from polyfed.data.datasets.penguins import SILENT, UNSEXED
    from polyfed.experiments.comparing import personal_scores

    last = {}
    for cell in document.cells:
        scores = personal_scores(Path(cell.folder))
        last[cell.method] = scores[scores["round"] == scores["round"].max()].set_index(["client", "task", "metric"])

    def line(words: str, task: str, metric: str, *, only: str | None = None) -> list[str]:
        values = []
        for scores in last.values():
            of_clients = scores["value"].xs((task, metric), level=("task", "metric"))
            chosen = of_clients.drop(index=[SILENT, UNSEXED]) if only is None else of_clients.loc[[only]]
            values.append(number(chosen.mean()))
        return [words, *values]

    rows = [
        line(f"{LABELLED} labelled birds: body mass, error in g", "body_mass_g", "rmse"),
        line("    birds within the 95 % interval", "body_mass_g", "coverage"),
        line("    sex, accuracy", "sex", "accuracy"),
        line("    species, accuracy", "species", "accuracy"),
        line(f"no bird sexed ({UNSEXED}): sex, accuracy", "sex", "accuracy", only=UNSEXED),
        line(f"no label at all ({SILENT}): body mass, error in g", "body_mass_g", "rmse", only=SILENT),
        line("    sex, accuracy", "sex", "accuracy", only=SILENT),
    ]
    show_table("Birds that nobody has labelled, mean over the colonies", ["", *last], rows)
    say_where(document)
