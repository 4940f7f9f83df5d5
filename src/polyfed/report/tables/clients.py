"""Clients × tasks, each column coloured by rank: where the method serves someone badly.

>>> list(shades("rmse", [0.5, 0.1, None, 0.3]))
[0.0, 1.0, None, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.report.directions import advice, badness, decimals, headline, name_of
from polyfed.report.history import History

MOST_CLIENTS = 200


@dataclass(frozen=True)
class ClientTable:
    """`columns` are (task, metric, advice); `rows` are (client, [(text, shade from 0 to 1) or None])."""

    columns: list[tuple[str, str, str]]
    rows: list[tuple[str, list[tuple[str, float] | None]]]
    n_clients: int  # with those that are not shown


def client_table(history: History) -> ClientTable | None:
    """The headline metric of each task for every client; of very many clients, those that are served worst."""
    scores = history.final()
    if not scores:
        return None
    wanted = [(task, headline(kind)) for task, kind in history.kinds.items() if headline(kind) in history.metrics(task)]
    values = [[scores[client].get(task, {}).get(metric) for client in scores] for task, metric in wanted]
    shaded = [shades(metric, column) for (_, metric), column in zip(wanted, values, strict=True)]
    texts = [_texts(column) for column in values]
    clients = list(scores)
    rows = [
        (clients[at], [_cell(text[at], shade[at]) for text, shade in zip(texts, shaded, strict=True)])
        for at in _chosen(shaded, len(clients))
    ]
    columns = [(task, name_of(metric), advice(metric)) for task, metric in wanted]
    return ClientTable(columns, rows, len(clients))


def shades(metric: str, column: Sequence[float | None]) -> list[float | None]:
    """The rank of each value, from 0 for the worst to 1 for the best; equal values share one."""
    bad = np.array([np.nan if value is None else badness(metric, value) for value in column])
    present = np.isfinite(bad)
    kinds, of_value = np.unique(bad[present], return_inverse=True)
    shade = np.full(len(bad), np.nan)
    shade[present] = 1 - of_value / max(1, len(kinds) - 1)
    return [None if np.isnan(value) else round(float(value), 3) for value in shade]


def _chosen(shaded: Sequence[Sequence[float | None]], n_clients: int) -> list[int]:
    if n_clients <= MOST_CLIENTS:
        return list(range(n_clients))
    table = np.array(shaded, dtype=np.float64)
    known = np.isfinite(table)
    mean = np.where(known, table, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    mean[~known.any(axis=0)] = np.inf  # nothing is known of them: they come last
    return np.argsort(mean, kind="stable")[:MOST_CLIENTS].tolist()


def _texts(column: Sequence[float | None]) -> list[str]:
    digits = decimals(value for value in column if value is not None)
    return ["" if value is None else f"{value:,.{digits}f}" for value in column]


def _cell(text: str, shade: float | None) -> tuple[str, float] | None:
    return None if shade is None else (text, shade)
