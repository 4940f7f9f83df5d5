"""`polyfed compare`: several methods and seeds on the same data, one table and one report; `demo` does the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyfed.cli.arguments import AsJson, Jobs, Names, Quiet, WriteReport, argument, grouped, option, reject_run
from polyfed.cli.compared import describe, is_chosen, show, tried
from polyfed.cli.export import try_report
from polyfed.cli.options import DataOptions, RunOptions, settings, split_names, split_seeds, with_scales
from polyfed.cli.output import emit, note
from polyfed.cli.progress import images_bar, progress_bar, shared_bar
from polyfed.defaults import COMPARED
from polyfed.errors import Interrupted, PolyfedError

if TYPE_CHECKING:
    from polyfed.cli.documents import CompareDocument
    from polyfed.data import Federation
    from polyfed.experiments.comparing import Cell, Outcome
    from polyfed.experiments.config import Config
    from polyfed.experiments.tuning import Choice
    from polyfed.folders.lines import Event


@grouped
def command(
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
    from polyfed.data.tables.files import stem_of
    from polyfed.experiments.reading import read_grid

    values_of: dict[tuple[str, ...], list[object]] = {}
    for keys, values in map(read_grid, grid or ()):
        values_of.setdefault(("compare", "grid", *keys), []).extend(values)
    extra = {("compare", "methods"): split_names(methods), ("compare", "seeds"): split_seeds(seeds), **values_of}
    chosen, where = settings(config, data, how, extra=extra)
    chosen = with_scales(chosen, where, quiet=quiet)
    name = chosen.data.dataset or stem_of(chosen.data.source or "data")
    folder = out or Path(chosen.run.folder or Path("runs") / f"{name}-compare")
    run_comparison(chosen, folder, where, argv=context.obj["argv"], jobs=jobs, report=report, json=json, quiet=quiet)


def run_comparison(
    config: Config,
    folder: Path,
    where: str,
    *,
    argv: Sequence[str],
    jobs: int = 1,
    report: bool = True,
    json: bool = False,
    quiet: bool = False,
    command: str = "compare",
    table: Callable[[CompareDocument, dict[str, Choice]], None] = show,
) -> None:
    """Everything from the settings to the table."""
    from polyfed.experiments.building import build_federation
    from polyfed.experiments.comparing import cells
    from polyfed.experiments.tuning import grids, lacking, tune

    reject_run(folder, "comparisons")
    with images_bar(quiet=quiet):
        federation = build_federation(config.data, where)
    todo = cells(config, federation, folder, where)
    for tuned, methods in lacking(config.compare).items():
        if methods:
            note(f"note: {', '.join(methods)} without option {tuned!r}: not tuned by it")
    try:
        outcomes = _run_all(todo, federation, where, jobs, argv, quiet)
    except KeyboardInterrupt:
        raise Interrupted("stopped", where=folder, remedy="the same command goes on with what is left") from None
    failed = {one.cell.folder: one.error for one in outcomes if one.error is not None}
    if len(failed) == len(todo):
        raise next(iter(failed.values()))
    choices = tune(grids(config.compare, where), todo, failed)
    shown = [cell.folder for cell in todo if cell.folder not in failed and is_chosen(cell, choices)]
    page = try_report(shown, folder / "report.html", tried=tried(choices)) if report and shown else None
    document = describe(folder, outcomes, choices, page, command)
    emit(document) if json else table(document, choices)
    # What was found is reported by now; what is missing makes it a failure.
    if failed:
        first = str(next(iter(failed.values()))).rstrip(".")
        raise PolyfedError(f"{len(failed)} of {len(todo)} runs failed, the first with: {first}")
    if lost := [method for method, choice in choices.items() if choice.chosen is None]:
        what = "no combination has a finite loss on the validation rows with every seed"
        raise PolyfedError(what, where=f"the grid of {lost[0]}", remedy="give it other values")


def _run_all(
    todo: Sequence[Cell], federation: Federation, where: str, jobs: int, argv: Sequence[str], quiet: bool
) -> list[Outcome]:
    """What came of each cell, in the order of the cells."""
    from polyfed.experiments.comparing import run_cells

    with ExitStack() as stack:
        if jobs > 1:
            on_event = ended = stack.enter_context(shared_bar(todo, quiet=quiet, outlook=True))
        else:
            on_event, ended = _one_by_one(todo, stack, quiet), lambda cell: None
        done = {}
        for outcome in run_cells(todo, federation, where, jobs=jobs, on_event=on_event, command=argv):
            done[outcome.cell.folder] = outcome
            ended(outcome.cell)
            if outcome.error is not None:
                if jobs == 1:
                    stack.close()  # the bar of what failed; one that is shared goes on
                note(f"warning: {outcome.cell.folder.name} failed: {outcome.error}")
        return [done[cell.folder] for cell in todo]


def _one_by_one(todo: Sequence[Cell], stack: ExitStack, quiet: bool) -> Callable[[Cell, Event], None]:
    """A bar for each cell, one at a time; those before it stay on the screen."""
    from polyfed.experiments.tuning import written

    bars: dict[Path, Callable[[Event], None]] = {}
    numbers = {cell.folder: i for i, cell in enumerate(todo, start=1)}

    def on_event(cell: Cell, event: Event) -> None:
        if cell.folder not in bars:
            stack.close()
            name = f"{cell.method} ({written(cell.options)})" if cell.options else cell.method
            label = f"{numbers[cell.folder]} of {len(todo)}: {name}, seed {cell.seed}"
            bars[cell.folder] = stack.enter_context(progress_bar(cell.config.run.rounds, label=label, quiet=quiet))
        bars[cell.folder](event)

    return on_event
