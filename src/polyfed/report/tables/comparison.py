"""Methods × tasks: means over the clients, how far apart the seeds are, and what a guess would have scored.

Runs that differ in nothing but the seed are one line. The std is a standard deviation: over the seeds, or over the
clients where there is one seed. The best is marked only where it is better in pairs too, so that luck cannot decide it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, advice
from polyfed.report.folders import RunFolder
from polyfed.report.tables.ranking import Ranking, by_seed_of, kinds_of, leader, ranking
from polyfed.report.templates import decimals, guess_of, name_of

FREE = ("seed", "workers", "keep")  # settings that do not make it another experiment


@dataclass(frozen=True)
class Group:
    """One line of the table: a method with its options, and its runs by seed."""

    name: str
    runs: tuple[RunFolder, ...]

    @property
    def pools_data(self) -> bool:
        return bool(self.runs[0].described.get("pools_data"))


class Column(NamedTuple):
    """One metric of one task."""

    task: str
    metric: str
    name: str
    advice: str
    guess: str  # what costs nothing, if this is the metric by which the two are compared


class Cell(NamedTuple):
    """A mean as text, its std as text (empty if there is nothing to spread over), and whether it is the best for sure."""

    mean: str
    std: str
    best: bool


class Row(NamedTuple):
    """A line of the table: a cell or None for each column."""

    name: str
    n_seeds: int
    cells: list[Cell | None]
    pools_data: bool  # all rows in one place: no privacy
    rank: str  # mean over clients, tasks and seeds; empty if there is nothing to compare with


class Comparison(NamedTuple):
    """The whole table; `baseline` has a text or None for each column."""

    columns: list[Column]
    rows: list[Row]
    baseline: list[str | None]
    ranking: Ranking | None
    over_seeds: bool


def grouped(runs: Sequence[RunFolder]) -> list[Group]:
    """The runs by method and options, in the order in which they came; a seed that comes twice counts once."""
    found: dict[str, dict[int, RunFolder]] = {}
    for run in runs:
        # The same for runs that differ in their seed at most.
        identity = json.dumps([run.method, _choices(run), sorted(run.history.clients)], sort_keys=True)
        found.setdefault(identity, {}).setdefault(run.seed, run)
    firsts = [next(iter(by_seed.values())) for by_seed in found.values()]
    return [
        Group(_name(first, firsts), tuple(by_seed.values()))
        for first, by_seed in zip(firsts, found.values(), strict=True)
    ]


def comparison(groups: Sequence[Group], *, every_metric: bool = False) -> Comparison:
    """The headline metric of each task, or every metric that was measured."""
    histories = [run.history for group in groups for run in group.runs]
    columns = [
        Column(task, metric, name_of(metric), advice(metric), guess_of(kind) if metric == KINDS[kind].headline else "")
        for task, kind in kinds_of(groups).items()
        for metric in dict.fromkeys(m for history in histories for m in history.metrics(task))
        if metric != BASELINE and (every_metric or metric == KINDS[kind].headline)
    ]
    ranked = ranking(groups)
    cells, baseline = [], []
    for column in columns:
        entries = [_mean_and_std(group, column.task, column.metric) for group in groups]
        # The same guess for all lines, so that of any is taken.
        guesses = (_mean_and_std(group, column.task, BASELINE) for group in groups if column.guess)
        guessed = next((found[0] for found in guesses if found), None)
        digits = decimals([entry[0] for entry in entries if entry] + ([] if guessed is None else [guessed]))
        best = leader(groups, column.task, column.metric)
        cells.append([_cell(entry, digits, group.name == best) for entry, group in zip(entries, groups, strict=True)])
        baseline.append(None if guessed is None else f"{guessed:,.{digits}f}")
    ranks = [f"{ranked.mean[group.name]:.2f}" if ranked else "" for group in groups]
    rows = [
        Row(group.name, len(group.runs), [of_column[at] for of_column in cells], group.pools_data, ranks[at])
        for at, group in enumerate(groups)
    ]
    return Comparison(columns, rows, baseline, ranked, any(len(group.runs) > 1 for group in groups))


def _mean_and_std(group: Group, task: str, metric: str) -> tuple[float, float | None] | None:
    """Over the seeds of a line, each the mean over its clients; of one seed, over the clients."""
    by_seed = by_seed_of(group, task, metric)
    if not by_seed:
        return None
    means = [fmean(values) for values in by_seed]
    spread_over = means if len(means) > 1 else by_seed[0]
    return fmean(means), stdev(spread_over) if len(spread_over) > 1 else None


def _cell(entry: tuple[float, float | None] | None, digits: int, best: bool) -> Cell | None:
    if entry is None:
        return None
    return Cell(f"{entry[0]:,.{digits}f}", "" if entry[1] is None else f"{entry[1]:,.{digits}f}", best)


def _name(run: RunFolder, others: Sequence[RunFolder]) -> str:
    """The method, and what sets this line apart from others of the same method."""
    namesakes = [_choices(other) for other in others if other.method == run.method]
    own = _choices(run).items()
    different = [f"{name}={value}" for name, value in own if any(other.get(name) != value for other in namesakes)]
    return f"{run.method} ({', '.join(different)})" if different else run.method


def _choices(run: RunFolder) -> dict[str, Any]:
    settings = {name: value for name, value in run.settings.items() if name not in FREE}
    about = {"tasks": ", ".join(run.history.kinds), "clients": len(run.history.clients)}
    return {**run.described["options"], **settings, **about}
