"""Clients × tasks, each score coloured by rank, beside labels, a guess and the skill: where someone is served badly.

>>> list(shades("rmse", [0.5, 0.1, None, 0.3]))
[0.0, 1.0, None, 0.5]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyfed.counting import as_people_count
from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, advice, badness
from polyfed.report.folders import History
from polyfed.report.templates import decimals, guess_of, name_of

MOST_CLIENTS = 200


class Column(NamedTuple):
    """A heading, and below it what kind of number it is."""

    task: str
    name: str
    says: str = ""


class Cell(NamedTuple):
    """A text, the number that it is sorted by, and for a score its rank, from 0 for the worst to 1 for the best."""

    text: str
    value: float
    shade: float | None = None


class ClientTable(NamedTuple):
    """`rows` are (client, a cell or None for each column)."""

    columns: list[Column]
    rows: list[tuple[str, list[Cell | None]]]
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
    columns: list[Column] = []
    cells: list[list[Cell | None]] = []
    shaded: list[list[float | None]] = []

    def add(column: Column, values: Sequence[float | None], shade: Sequence[float | None] | None = None) -> None:
        present = [value for value in values if value is not None]
        if present:
            digits = 0 if all(isinstance(value, int) for value in present) else decimals(present)
            columns.append(column)
            cells.append(
                [
                    None if value is None else Cell(f"{value:,.{digits}f}", float(f"{value:.6g}"), of_value)
                    for value, of_value in zip(values, shade or [None] * len(values), strict=True)
                ]
            )

    known = [(data or {}).get(client, {}) for client in clients]
    add(Column("", "rows", "to train on"), [of.get("rows", {}).get("train") for of in known])
    for task, kind in history.kinds.items():
        metric = KINDS[kind].headline
        of_task = [scores.get(client, {}).get(task, {}) for client in clients]
        labels = [of.get("labels", {}).get(task, {}) for of in known]
        add(Column(task, "labels", "to train on"), [of.get("train") for of in labels])
        add(Column(task, "labels", "measured on"), [of.get("test") for of in labels])
        values = [one.get(metric) for one in of_task]
        shaded.append(shades(metric, values))
        add(Column(task, name_of(metric), advice(metric)), values, shaded[-1])
        add(Column(task, f"guess: {guess_of(kind)}", name_of(metric)), [one.get(BASELINE) for one in of_task])
        add(Column(task, "skill", "0 is a guess, 1 perfect"), [one.get("skill") for one in of_task])
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
