"""From the settings of a comparison to its document and tables. Commands import this when they run: it imports everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from polyfed.cli import documents
from polyfed.cli.arguments import reject_run
from polyfed.cli.compare import LABELLED
from polyfed.cli.documents import CompareDocument, ScoreDocument
from polyfed.cli.output import emit, note, number, say, show_table
from polyfed.cli.pages import try_report
from polyfed.cli.progress import images_bar, progress_bar, shared_bar
from polyfed.data import Federation
from polyfed.errors import Interrupted, PolyfedError
from polyfed.experiments.building import build_federation
from polyfed.experiments.comparing import Cell, Outcome, Scores, cells, personal_scores, ranked, run_cells, scores
from polyfed.experiments.config import Config
from polyfed.experiments.grid import grids, lacking, written
from polyfed.experiments.tuning import Choice, tune
from polyfed.folders.lines import Event, read_events
from polyfed.kinds import KINDS
from polyfed.report.folders import RunFolder, read_run
from polyfed.report.tables.comparison import Group
from polyfed.report.tables.ranking import blocks, leader, ranking


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
    table: Callable[[CompareDocument, Mapping[str, Choice]], None] | None = None,
) -> None:
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
    emit(document) if json else (table or show)(document, choices)
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


def is_chosen(cell: Cell, choices: Mapping[str, Choice]) -> bool:
    """Whether the table has the cell: that of a method without a grid always."""
    return cell.method not in choices or choices[cell.method].chosen == cell.options


def describe(
    folder: Path, outcomes: Sequence[Outcome], choices: Mapping[str, Choice], page: Path | None, command: str
) -> CompareDocument:
    """The document; there is at least one outcome that is no failure."""
    found = {one.cell.folder: {} if one.error else scores(one.cell.folder) for one in outcomes}
    of_seeds: dict[str, list[Scores]] = {one.cell.method: [] for one in outcomes}
    runs: dict[str, list[RunFolder]] = {}
    for one in outcomes:
        if is_chosen(one.cell, choices):
            of_seeds[one.cell.method].append(found[one.cell.folder])
            if one.error is None:
                runs.setdefault(one.cell.method, []).append(read_run(one.cell.folder))
    kinds: dict[str, str] = read_events(next(one.cell.folder for one in outcomes if one.error is None))[0]["tasks"]
    metric_of = {task: KINDS[kind].headline for task, kind in kinds.items()}
    group_of = {method: Group(method, tuple(of_method)) for method, of_method in runs.items()}
    groups = list(group_of.values())
    order, best = ranking(groups), {task: leader(groups, task, metric) for task, metric in metric_of.items()}
    table = {}
    for method, line in ranked(of_seeds, metric_of).items():
        of_tasks = {}
        for task, score in line.items():
            guesses = [run[task]["baseline"] for run in of_seeds[method] if "baseline" in run.get(task, {})]
            skills = blocks(group_of[method], task, "skill").values()
            of_tasks[task] = documents.ScoreDocument(
                **score._asdict(),
                best=best[task] == method,
                baseline=sum(guesses) / len(guesses) if guesses else None,
                skill=median(skills) if skills else None,  # one client with an absurd score must not decide it
            )
        rank, pools_data = order and order.mean.get(method), method in group_of and group_of[method].pools_data
        table[method] = documents.LineDocument(scores=of_tasks, rank=rank, pools_data=pools_data)
    cells = [
        documents.CellDocument(
            method=one.cell.method,
            seed=one.cell.seed,
            options=dict(one.cell.options),
            chosen=is_chosen(one.cell, choices),
            folder=str(one.cell.folder),
            error=str(one.error) if one.error else None,
            scores={task: dict(metrics) for task, metrics in found[one.cell.folder].items()},
        )
        for one in outcomes
    ]
    seeds = list(dict.fromkeys(one.cell.seed for one in outcomes))
    tuning = {}
    for method, choice in choices.items():
        tried = [
            documents.CombinationDocument(options=options, loss=mean, by_seed=dict(zip(seeds, losses, strict=True)))
            for options, mean, losses in choice.tried
        ]
        tuning[method] = documents.TuningDocument(grid=choice.grid, combinations=tried, chosen=choice.chosen)
    of_ranks = None
    if order is not None:
        of_ranks = documents.RankingDocument(blocks=order.n_blocks, critical_difference=order.critical, wins=order.wins)
    return (documents.DemoDocument if command == "demo" else documents.CompareDocument)(
        folder=str(folder),
        tasks=kinds,
        metrics=metric_of,
        cells=cells,
        tuning=tuning,
        table=table,
        ranking=of_ranks,
        report=None if page is None else str(page),
    )


def tried(choices: Mapping[str, Choice]) -> list[tuple[str, str, str, bool]]:
    """A line for each combination of each grid: method, options, mean validation loss, whether it is chosen."""
    return [
        (method, written(options), number(mean) if math.isfinite(mean) else "-", options == choice.chosen)
        for method, choice in choices.items()
        for options, mean, _ in choice.tried
    ]


def show(document: CompareDocument, choices: Mapping[str, Choice]) -> None:
    if choices:
        rows = [[method, options, loss, "chosen" if chosen else ""] for method, options, loss, chosen in tried(choices)]
        title = "Validation rows, by which the options are chosen: log loss, mean over the clients, sum over the tasks"
        show_table(title, ["method", "options", "loss", ""], rows, left=2)
    headings = ["method", *(f"{task} {metric}" for task, metric in document.metrics.items()), "mean rank"]
    rows = []
    for method, line in document.table.items():
        best = choices[method].chosen if method in choices else None
        name = f"{method} ({written(best)})" if best else method
        cells = [_cell(line.scores.get(task)) for task in document.metrics]
        rows.append([f"{name} (no privacy)" if line.pools_data else name, *cells, number(line.rank)])
    seeds = len({cell.seed for cell in document.cells})
    title = f"Test rows, mean over the clients{f' and ± spread over {seeds} seeds' if seeds > 1 else ''}; (rank)"
    lines = document.table.values()
    known = [[line.scores[task].baseline for line in lines if task in line.scores] for task in document.metrics]
    guesses = [next(filter(None, of_task), None) for of_task in known]  # what costs nothing, as all methods have it
    closing = [["guessing: mean, majority class", *map(number, guesses), ""]] if any(guesses) else []
    show_table(title, headings, rows, closing=closing)
    for line in _remarks(document):
        say(line)
    _say_where(document)


def show_demo(document: CompareDocument, choices: Mapping[str, Choice]) -> None:
    """What each method gains, by what a colony lacks."""
    from polyfed.data.datasets.penguins import SILENT, UNSEXED

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
    _say_where(document)


def _say_where(document: CompareDocument) -> None:
    say(f"The runs are in {document.folder}")
    if document.report:
        say(f"The report is {document.report}")


def _remarks(document: CompareDocument) -> list[str]:
    """How to read the table, as far as it needs to be said."""
    lines = []
    if document.ranking is not None:
        lines.append(
            "* better than every other method in pairs over clients and seeds (Wilcoxon, Holm, p < 0.05)"
            if any(one.best for line in document.table.values() for one in line.scores.values())
            else "No method is better than every other one in pairs over clients and seeds: luck may decide the order"
        )
        reach = document.ranking.critical_difference
        if reach is not None:
            lines.append(
                f"Mean ranks over {document.ranking.blocks} clients × tasks × seeds; "
                f"those nearer than {number(reach)} may differ by luck alone (Nemenyi)"
            )
    if any(line.pools_data for line in document.table.values()):
        lines.append("no privacy: all rows are in one place; a yardstick, not a federation")
    poor = {
        method: [task for task, score in line.scores.items() if score.skill is not None and score.skill <= 0]
        for method, line in document.table.items()
    }
    if named := "; ".join(f"{method} at {', '.join(tasks)}" for method, tasks in poor.items() if tasks):
        lines.append(f"warning: no better than guessing (median skill over the clients): {named}")
    return lines


def _cell(score: ScoreDocument | None) -> str:
    if score is None:
        return "-"
    std = f" ± {number(score.std)}" if score.seeds > 1 else ""
    return f"{'* ' if score.best else ''}{number(score.mean)}{std} ({score.rank:g})"
