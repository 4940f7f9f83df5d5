"""The predictions in results.json as columns: one task, all clients together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Rows:
    """Every scored row of a task. `client` is the position in `clients`; `values` by name have one entry for each row."""

    clients: list[str]
    client: np.ndarray
    values: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.client)


def rows_of(predictions: Mapping[str, Any], task: str, names: tuple[str, ...]) -> Rows:
    """The named columns of a task; rows where a number is missing are left out.

    >>> of_a = {"y": [1.0, 2.0], "mean": [1.5, None]}
    >>> rows = rows_of({"a": {"pulse": of_a}, "b": {}}, "pulse", ("y", "mean"))
    >>> rows.clients, rows.values["mean"].tolist()
    (['a'], [1.5])
    """
    found = {
        client: of_client[task]
        for client, of_client in predictions.items()
        if task in of_client and all(of_client[task].get(name) for name in names)
    }
    if not found:
        return Rows([], np.zeros(0, dtype=int), {name: np.zeros(0) for name in names})
    columns = {
        name: np.concatenate([np.asarray(one[name], dtype=np.float64) for one in found.values()]) for name in names
    }
    client = np.repeat(np.arange(len(found)), [len(one[names[0]]) for one in found.values()])
    whole = np.all([np.isfinite(column.reshape(len(client), -1)).all(axis=1) for column in columns.values()], axis=0)
    return Rows(list(found), client[whole], {name: column[whole] for name, column in columns.items()})
