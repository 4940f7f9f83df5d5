"""Methods × tasks: means over the clients, how far apart the seeds are, and what a guess would have scored.

Runs that differ in nothing but the seed are one line. The std is a standard deviation: over the seeds, or over the
clients where there is one seed. The best is marked only where it is better in pairs too, so that luck cannot decide it.

And clients × tasks, each score coloured by rank, beside labels, a guess and the skill: where someone is served badly.

>>> list(shades("rmse", [0.5, 0.1, None, 0.3]))
[0.0, 1.0, None, 0.5]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from polyfed.counting import as_people_count
from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, advice, badness
from polyfed.report.folders import History, RunFolder
from polyfed.report.tables.ranking import Ranking, by_seed_of, kinds_of, leader, ranking
from polyfed.report.templates import decimals, guess_of, name_of

MOST_CLIENTS = 200
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
    groups = []
    for first, by_seed in zip(firsts, found.values(), strict=True):
        # The method, and what sets this line apart from others of the same method.
        namesakes, own = [_choices(other) for other in firsts if other.method == first.method], _choices(first)
        different = [f"{name}={own[name]}" for name in own if any(other.get(name) != own[name] for other in namesakes)]
        name = f"{first.method} ({', '.join(different)})" if different else first.method
        groups.append(Group(name, tuple(by_seed.values())))
    return groups


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
        form = f",.{digits}f"
        of_groups = [
            entry and (format(entry[0], form), "" if entry[1] is None else format(entry[1], form)) for entry in entries
        ]
        cells.append([of and Cell(*of, group.name == best) for of, group in zip(of_groups, groups, strict=True)])
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


def _choices(run: RunFolder) -> dict[str, Any]:
    settings = {name: value for name, value in run.settings.items() if name not in FREE}
    about = {"tasks": ", ".join(run.history.kinds), "clients": len(run.history.clients)}
    return {**run.described["options"], **settings, **about}


class ClientColumn(NamedTuple):
    """A heading, and below it what kind of number it is."""

    task: str
    name: str
    says: str = ""


class ClientCell(NamedTuple):
    """A text, the number that it is sorted by, and for a score its rank, from 0 for the worst to 1 for the best."""

    text: str
    value: float
    shade: float | None = None


class ClientTable(NamedTuple):
    """`rows` are (client, a cell or None for each column)."""

    columns: list[ClientColumn]
    rows: list[tuple[str, list[ClientCell | None]]]
    n_clients: int  # with those that are not shown


def client_table(
    history: History, data: Mapping[str, Any] | None = None, most: int = MOST_CLIENTS
) -> ClientTable | None:
    """Rows and labels of every client if they are known (`data` of results.json), and for each task its main score, what
    a guess would score, and the skill; of very many clients, those that are served worst."""
    scores = history.final()
    clients: list[str] = sorted({*scores, *(data or {})}, key=as_people_count)
    if not clients:
        return None
    columns: list[ClientColumn] = []
    cells: list[list[ClientCell | None]] = []
    shaded: list[list[float | None]] = []

    def add(column: ClientColumn, values: Sequence[float | None], shade: Sequence[float | None] | None = None) -> None:
        present = [value for value in values if value is not None]
        if present:
            digits = 0 if all(isinstance(value, int) for value in present) else decimals(present)
            columns.append(column)
            cells.append(
                [
                    None if value is None else ClientCell(f"{value:,.{digits}f}", float(f"{value:.6g}"), of_value)
                    for value, of_value in zip(values, shade or [None] * len(values), strict=True)
                ]
            )

    known = [(data or {}).get(client, {}) for client in clients]
    add(ClientColumn("", "rows", "to train on"), [of.get("rows", {}).get("train") for of in known])
    for task, kind in history.kinds.items():
        metric = KINDS[kind].headline
        of_task = [scores.get(client, {}).get(task, {}) for client in clients]
        labels = [of.get("labels", {}).get(task, {}) for of in known]
        add(ClientColumn(task, "labels", "to train on"), [of.get("train") for of in labels])
        add(ClientColumn(task, "labels", "measured on"), [of.get("test") for of in labels])
        values = [one.get(metric) for one in of_task]
        shaded.append(shades(metric, values))
        add(ClientColumn(task, name_of(metric), advice(metric)), values, shaded[-1])
        add(ClientColumn(task, f"guess: {guess_of(kind)}", name_of(metric)), [one.get(BASELINE) for one in of_task])
        add(ClientColumn(task, "skill", "0 is a guess, 1 perfect"), [one.get("skill") for one in of_task])
    chosen = list(range(len(clients)))
    if len(clients) > most:
        table = np.array(shaded, dtype=np.float64)
        is_known = np.isfinite(table)
        mean = np.where(is_known, table, 0).sum(axis=0) / np.maximum(1, is_known.sum(axis=0))
        mean[~is_known.any(axis=0)] = np.inf  # nothing is known of them: they come last
        chosen = np.argsort(mean, kind="stable")[:most].tolist()
    return ClientTable(columns, [(clients[at], [column[at] for column in cells]) for at in chosen], len(clients))


def shades(metric: str, column: Sequence[float | None]) -> list[float | None]:
    """The rank of each value, from 0 for the worst to 1 for the best; equal values share one."""
    bad = np.array([np.nan if value is None else badness(metric, value) for value in column])
    present = np.isfinite(bad)
    kinds, of_value = np.unique(bad[present], return_inverse=True)
    shade = np.full(len(bad), np.nan)
    shade[present] = 1 - of_value / max(1, len(kinds) - 1)
    return [None if np.isnan(value) else round(float(value), 3) for value in shade]
