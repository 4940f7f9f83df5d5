"""What came of a comparison, as a document and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.cli.output import number, say, show_table

if TYPE_CHECKING:
    from polyfed.cli.documents import CompareDocument, ScoreDocument
    from polyfed.experiments.comparing import Cell, Outcome
    from polyfed.experiments.tuning import Choice
    from polyfed.report.tables import Group


def is_chosen(cell: Cell, choices: Mapping[str, Choice]) -> bool:
    """Whether the table has the cell: that of a method without a grid always."""
    return cell.method not in choices or choices[cell.method].chosen == cell.options


def describe(
    folder: Path, outcomes: Sequence[Outcome], choices: Mapping[str, Choice], page: Path | None, command: str
) -> CompareDocument:
    """The document; there is at least one outcome that is no failure."""
    from polyfed.cli import documents
    from polyfed.experiments.comparing import scores
    from polyfed.experiments.ranking import ranked
    from polyfed.folders.lines import read_events
    from polyfed.kinds import KINDS
    from polyfed.report.tables import leader, ranking

    found = {one.cell.folder: {} if one.error else scores(one.cell.folder) for one in outcomes}
    of_seeds: dict[str, list[Any]] = {one.cell.method: [] for one in outcomes}
    for one in outcomes:
        if is_chosen(one.cell, choices):
            of_seeds[one.cell.method].append(found[one.cell.folder])
    kinds: dict[str, str] = read_events(next(one.cell.folder for one in outcomes if one.error is None))[0]["tasks"]
    metric_of = {task: KINDS[kind].headline for task, kind in kinds.items()}
    groups = _groups(outcomes, choices)
    order = ranking(groups)
    table = {
        method: documents.LineDocument(
            scores={
                task: documents.ScoreDocument(
                    **score._asdict(),
                    best=len(groups) > 1 and leader(groups, task, metric_of[task]) == method,
                    baseline=_mean(of_seeds[method], task, "baseline"),
                    skill=_median_skill(groups, method, task),
                )
                for task, score in line.items()
            },
            rank=None if order is None else order.mean.get(method),
            pools_data=any(group.pools_data for group in groups if group.name == method),
        )
        for method, line in ranked(of_seeds, metric_of).items()
    }
    kind = documents.DemoDocument if command == "demo" else documents.CompareDocument
    seeds = list(dict.fromkeys(one.cell.seed for one in outcomes))
    return kind(
        folder=str(folder),
        tasks=kinds,
        metrics=metric_of,
        cells=[
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
        ],
        tuning={
            method: documents.TuningDocument(
                grid=choice.grid,
                combinations=[
                    documents.CombinationDocument(
                        options=options, loss=mean, by_seed=dict(zip(seeds, losses, strict=True))
                    )
                    for options, mean, losses in zip(choice.combinations, choice.means, choice.losses, strict=True)
                ],
                chosen=choice.chosen,
            )
            for method, choice in choices.items()
        },
        table=table,
        ranking=None
        if order is None
        else documents.RankingDocument(blocks=order.n_blocks, critical_difference=order.critical, wins=order.wins),
        report=None if page is None else str(page),
    )


def tried(choices: Mapping[str, Choice]) -> list[tuple[str, str, str, bool]]:
    """A line for each combination of each grid: method, options, mean validation loss, whether it is chosen."""
    from polyfed.experiments.grid import written

    return [
        (method, written(options), number(mean) if math.isfinite(mean) else "-", options == choice.chosen)
        for method, choice in choices.items()
        for options, mean in zip(choice.combinations, choice.means, strict=True)
    ]


def show(document: CompareDocument, choices: Mapping[str, Choice]) -> None:
    """The choice, if there was one, and the table."""
    from polyfed.experiments.grid import written

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
    show_table(title, headings, rows, closing=_guesses(document))
    for line in _remarks(document):
        say(line)
    say(f"The runs are in {document.folder}")
    if document.report:
        say(f"The report is {document.report}")


def _groups(outcomes: Sequence[Outcome], choices: Mapping[str, Choice]) -> list[Group]:
    """The runs of the table, a group for each method."""
    from polyfed.report.folders import read_run
    from polyfed.report.tables import Group

    by_method: dict[str, list[Any]] = {}
    for one in outcomes:
        if one.error is None and is_chosen(one.cell, choices):
            by_method.setdefault(one.cell.method, []).append(read_run(one.cell.folder))
    return [Group(method, tuple(runs)) for method, runs in by_method.items()]


def _guesses(document: CompareDocument) -> list[list[str]]:
    """A line for what costs nothing, as all methods have it."""
    found = {
        task: next(
            (s.baseline for line in document.table.values() if (s := line.scores.get(task)) and s.baseline), None
        )
        for task in document.metrics
    }
    known = any(value is not None for value in found.values())
    return [["guessing: mean, majority class", *map(number, found.values()), ""]] if known else []


def _remarks(document: CompareDocument) -> list[str]:
    """How to read the table, as far as it needs to be said."""
    lines = []
    if document.ranking is not None:
        enough = [one for line in document.table.values() for one in line.scores.values() if one.best]
        lines.append(
            "* better than every other method in pairs over clients and seeds (Wilcoxon, Holm, p < 0.05)"
            if enough
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


def _median_skill(groups: Sequence[Group], method: str, task: str) -> float | None:
    """Over clients and seeds: one client with an absurd score must not decide it."""
    from statistics import median

    from polyfed.report.tables.ranking import blocks

    found = [value for group in groups if group.name == method for value in blocks(group, task, "skill").values()]
    return median(found) if found else None


def _mean(runs: Sequence[Mapping[str, Mapping[str, float]]], task: str, metric: str) -> float | None:
    values = [run[task][metric] for run in runs if metric in run.get(task, {})]
    return sum(values) / len(values) if values else None


def _cell(score: ScoreDocument | None) -> str:
    if score is None:
        return "-"
    std = f" ± {number(score.std)}" if score.seeds > 1 else ""
    return f"{'* ' if score.best else ''}{number(score.mean)}{std} ({score.rank:g})"
