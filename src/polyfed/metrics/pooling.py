"""The scores of many clients as one line of a table.

>>> line = pooled([({"rmse": 1.0}, 30), ({"rmse": 3.0}, 10), ({}, 0)])
>>> line["rmse"]
Pooled(mean=2.0, std=1.0, weighted_mean=1.5, n_clients=2, n_rows=40)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from polyfed.errors import DataError


class Pooled(NamedTuple):
    """One metric over all clients that have it.

    mean           each client counts once
    std         the standard deviation over the clients, which are all there are (0 for a single one)
    weighted_mean  each row counts once; of an rmse, this is not the rmse of all rows together
    """

    mean: float
    std: float
    weighted_mean: float
    n_clients: int
    n_rows: int


def pooled(scores: Iterable[tuple[Mapping[str, float], int]]) -> dict[str, Pooled]:
    """Pool the (scores, number of rows) of clients; a metric that a client does not have is left out there."""
    values: dict[str, list[tuple[float, int]]] = {}
    for client, (of_client, n_rows) in enumerate(scores):
        if not of_client:
            continue
        if not math.isfinite(n_rows) or n_rows < 1 or n_rows != int(n_rows):
            remedy = "give the number of rows that were scored"
            raise DataError(f"scores of {n_rows} rows cannot be pooled", where=f"entry {client}", remedy=remedy)
        for name, value in of_client.items():
            values.setdefault(name, []).append((value, int(n_rows)))
    return {name: _pool(np.array(pairs, dtype=np.float64).T) for name, pairs in values.items()}


def _pool(pairs: np.ndarray) -> Pooled:
    value, n_rows = pairs
    total = n_rows.sum()
    return Pooled(float(value.mean()), float(value.std()), float(value @ n_rows / total), len(value), int(total))
