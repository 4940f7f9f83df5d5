"""Methods × tasks: means over the clients, and how far apart the seeds are.

Runs that differ in nothing but the seed are one line. The spread is a standard deviation: over the seeds, or over the
clients where there is one seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from polyfed.report.directions import advice, badness, decimals, headline, name_of
from polyfed.report.folders import RunFolder

FREE = ("seed", "workers", "keep")  # settings that do not make it another experiment


@dataclass(frozen=True)
class Group:
    """One line of the table: a method with its options, and its runs by seed."""

    name: str
    runs: tuple[RunFolder, ...]


@dataclass(frozen=True)
class Column:
    """One metric of one task."""

    task: str
    metric: str
    name: str
    advice: str


@dataclass(frozen=True)
class Cell:
    """A mean as text, its spread as text (empty if there is nothing to spread over), and whether no line is better."""

    mean: str
    spread: str
    best: bool


@dataclass(frozen=True)
class Comparison:
    """The whole table: `rows` are (name of the line, number of seeds, a cell or None for each column)."""

    columns: list[Column]
    rows: list[tuple[str, int, list[Cell | None]]]
    over_seeds: bool


def grouped(runs: Sequence[RunFolder]) -> list[Group]:
    """The runs by method and options, in the order in which they came; a seed that comes twice counts once."""
    found: dict[str, dict[int, RunFolder]] = {}
    for run in runs:
        found.setdefault(_identity(run), {}).setdefault(run.seed, run)
    firsts = [next(iter(by_seed.values())) for by_seed in found.values()]
    return [
        Group(_name(first, firsts), tuple(by_seed.values()))
        for first, by_seed in zip(firsts, found.values(), strict=True)
    ]


def comparison(groups: Sequence[Group], *, every_metric: bool = False) -> Comparison:
    """The headline metric of each task, or every metric that was measured."""
    columns = _columns(groups, every_metric)
    table = [[_mean_and_spread(group, column) for column in columns] for group in groups]
    cells = [_column_cells(column, [row[i] for row in table]) for i, column in enumerate(columns)]
    rows = [
        (group.name, len(group.runs), [column_cells[at] for column_cells in cells]) for at, group in enumerate(groups)
    ]
    return Comparison(columns, rows, any(len(group.runs) > 1 for group in groups))


def _columns(groups: Sequence[Group], every_metric: bool) -> list[Column]:
    histories = [run.history for group in groups for run in group.runs]
    kinds = {task: kind for history in histories for task, kind in history.kinds.items()}
    return [
        Column(task, metric, name_of(metric), advice(metric))
        for task, kind in kinds.items()
        for metric in dict.fromkeys(m for history in histories for m in history.metrics(task))
        if every_metric or metric == headline(kind)
    ]


def _mean_and_spread(group: Group, column: Column) -> tuple[float, float | None] | None:
    by_seed = [values for run in group.runs if (values := _of_clients(run, column))]
    if not by_seed:
        return None
    means = [fmean(values) for values in by_seed]
    spread_over = means if len(means) > 1 else by_seed[0]
    return fmean(means), stdev(spread_over) if len(spread_over) > 1 else None


def _of_clients(run: RunFolder, column: Column) -> list[float]:
    found = (tasks.get(column.task, {}).get(column.metric) for tasks in run.history.final().values())
    return [value for value in found if value is not None]


def _column_cells(column: Column, entries: Sequence[tuple[float, float | None] | None]) -> list[Cell | None]:
    digits = decimals(entry[0] for entry in entries if entry)
    # What is rounded alike is shown alike, so it is equally good.
    shown = [None if entry is None else round(badness(column.metric, round(entry[0], digits)), 9) for entry in entries]
    least = min((value for value in shown if value is not None), default=None)
    compared = sum(value is not None for value in shown) > 1
    return [
        None
        if entry is None
        else Cell(
            f"{entry[0]:,.{digits}f}",
            "" if entry[1] is None else f"{entry[1]:,.{digits}f}",
            compared and value == least,
        )
        for entry, value in zip(entries, shown, strict=True)
    ]


def _identity(run: RunFolder) -> str:
    """The same text for runs that differ in their seed at most."""
    return json.dumps([run.method, _choices(run), sorted(run.history.clients)], sort_keys=True)


def _name(run: RunFolder, others: Sequence[RunFolder]) -> str:
    """The method, and what sets this line apart from others of the same method."""
    namesakes = [_choices(other) for other in others if other.method == run.method]
    own = _choices(run)
    different = {name: value for name, value in own.items() if any(other.get(name) != value for other in namesakes)}
    if not different:
        return run.method
    return f"{run.method} ({', '.join(f'{name}={value}' for name, value in different.items())})"


def _choices(run: RunFolder) -> dict[str, Any]:
    settings = {name: value for name, value in run.settings.items() if name not in FREE}
    about = {"tasks": ", ".join(run.history.kinds), "clients": len(run.history.clients)}
    return {**run.described["options"], **settings, **about}
