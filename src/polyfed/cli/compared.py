"""What came of a comparison, as a document and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyfed.cli.output import number, say, show_table

if TYPE_CHECKING:
    from polyfed.cli.documents import CompareDocument, ScoreDocument
    from polyfed.experiments.comparing import Cell, Outcome, Scores
    from polyfed.experiments.tuning import Choice
    from polyfed.report.folders import RunFolder
    from polyfed.report.tables.comparison import Group


def is_chosen(cell: Cell, choices: Mapping[str, Choice]) -> bool:
    """Whether the table has the cell: that of a method without a grid always."""
    return cell.method not in choices or choices[cell.method].chosen == cell.options


def describe(
    folder: Path, outcomes: Sequence[Outcome], choices: Mapping[str, Choice], page: Path | None, command: str
) -> CompareDocument:
    """The document; there is at least one outcome that is no failure."""
    from polyfed.cli import documents
    from polyfed.experiments.comparing import ranked, scores
    from polyfed.folders.lines import read_events
    from polyfed.kinds import KINDS
    from polyfed.report.folders import read_run
    from polyfed.report.tables.comparison import Group
    from polyfed.report.tables.ranking import leader, ranking

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
    table = {
        method: documents.LineDocument(
            scores={
                task: documents.ScoreDocument(
                    **score._asdict(),
                    best=best[task] == method,
                    baseline=_mean_baseline(of_seeds[method], task),
                    skill=_median_skill(group_of[method], task),
                )
                for task, score in line.items()
            },
            rank=None if order is None else order.mean.get(method),
            pools_data=method in group_of and group_of[method].pools_data,
        )
        for method, line in ranked(of_seeds, metric_of).items()
    }
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
    from polyfed.experiments.tuning import written

    return [
        (method, written(options), number(mean) if math.isfinite(mean) else "-", options == choice.chosen)
        for method, choice in choices.items()
        for options, mean, _ in choice.tried
    ]


def show(document: CompareDocument, choices: Mapping[str, Choice]) -> None:
    """The choice, if there was one, and the table."""
    from polyfed.experiments.tuning import written

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
    say_where(document)


def say_where(document: CompareDocument) -> None:
    """Where the runs and the report are."""
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


def _median_skill(group: Group, task: str) -> float | None:
    """Over clients and seeds: one client with an absurd score must not decide it."""
    from statistics import median

    from polyfed.report.tables.ranking import blocks

    found = blocks(group, task, "skill").values()
    return median(found) if found else None


def _mean_baseline(runs: Sequence[Scores], task: str) -> float | None:
    values = [run[task]["baseline"] for run in runs if "baseline" in run.get(task, {})]
    return sum(values) / len(values) if values else None


def _cell(score: ScoreDocument | None) -> str:
    if score is None:
        return "-"
    std = f" ± {number(score.std)}" if score.seeds > 1 else ""
    return f"{'* ' if score.best else ''}{number(score.mean)}{std} ({score.rank:g})"
