"""Which rows a model has been trained on already: what it says of them is no measure of what it will say of others.

A row is known if its features, and every label it brings, are those of a training row. Each training row answers for one
row, so that many people of the same age and sex are not taken for the one who was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from polyfed.data import ClientData


def trained_on(rows: ClientData, known: Iterable[ClientData]) -> np.ndarray:
    """Whether each of these coded rows is one of the training rows."""
    keys = [_key(x) for x in rows.x]
    wanted, labels = set(keys), _labels_by_row(rows)
    left: dict[bytes, list[dict[str, tuple[float, ...]]]] = {}
    for data in known:
        theirs = _labels_by_row(data)
        for row, x in enumerate(data.x):
            if theirs[row] and (key := _key(x)) in wanted:  # nothing is learned from a row without labels
                left.setdefault(key, []).append(theirs[row])
    found = np.zeros(len(keys), dtype=bool)
    for row, key in enumerate(keys):
        same = next((one for one in left.get(key, ()) if labels[row].items() <= one.items()), None)
        if same is not None:
            left[key].remove(same)
            found[row] = True
    return found


def _key(x: np.ndarray) -> bytes:
    return (x + 0.0).tobytes()  # minus zero is zero


def _labels_by_row(data: ClientData) -> list[dict[str, tuple[float, ...]]]:
    labels: list[dict[str, tuple[float, ...]]] = [{} for _ in range(len(data.x))]
    for task, (at, y) in data.labels.items():
        for row, value in zip(at.tolist(), np.atleast_2d(y.T).T.tolist(), strict=True):
            labels[row][task] = tuple(value)
    return labels
