"""`polyfed compare`: several methods and seeds on the same data, one table and one report; `polyfed demo`: the same of what a
federation buys where labels are few, on nine colonies of penguins."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.arguments import AsJson, Jobs, Names, Quiet, WriteReport, argument, grouped, option
from polyfed.cli.options import DataOptions, RunOptions, settings, split_names, split_seeds, with_scales
from polyfed.cli.output import note
from polyfed.defaults import COMPARED

# Of the demo.
METHODS = ["local", "fedavg", "pfed-hier"]
ROUNDS, QUICK_ROUNDS = 25, 4
LABELLED = 5


@grouped
def compare(
    context: typer.Context,
    data: DataOptions,
    how: RunOptions,
    config: Annotated[
        Path | None, argument("File of settings (TOML), with what is to be compared.", "[CONFIG]")
    ] = None,
    methods: Annotated[
        Names, option(f"Methods ({','.join(COMPARED)}): see polyfed methods.", "A,B", names="methods")
    ] = None,
    seeds: Annotated[Names, option("Seeds (0); each method runs with each.", "0,1,2")] = None,
    grid: Annotated[Names, option("Values of an option; validation rows choose one.", "METHOD.OPTION=A,B")] = None,
    jobs: Jobs = 1,
    out: Annotated[Path | None, option("Folder of all runs. By default runs/<data>-compare.")] = None,
    report: WriteReport = True,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over seeds; the same command again goes on where it was stopped."""
    from polyfed.cli.compared import run_comparison
    from polyfed.experiments.reading import read_grid

    values_of: dict[tuple[str, ...], list[object]] = {}
    for keys, values in map(read_grid, grid or ()):
        values_of.setdefault(("compare", "grid", *keys), []).extend(values)
    extra = {("compare", "methods"): split_names(methods), ("compare", "seeds"): split_seeds(seeds), **values_of}
    chosen, where = settings(config, data, how, extra=extra)
    chosen = with_scales(chosen, where, quiet=quiet)
    folder = out or Path(chosen.run.folder or Path("runs") / f"{chosen.data.name}-compare")
    run_comparison(chosen, folder, where, argv=context.obj["argv"], jobs=jobs, report=report, json=json, quiet=quiet)


def demo(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="A few rounds only.")] = False,
    out: Annotated[Path | None, option("Folder of the runs. By default runs/demo, or the next that is free.")] = None,
    report: WriteReport = True,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Weigh, sex and name penguins from a few labelled birds with three methods, and write a report."""
    from polyfed.cli.compared import run_comparison, show_demo
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
    folder = out or next(free for free in chain([Path("runs/demo")], numbered) if not free.exists())
    config, how = check(document, "demo"), {"report": report, "json": json, "quiet": quiet}
    run_comparison(config, folder, "demo", argv=context.obj["argv"], command="demo", table=show_demo, **how)
