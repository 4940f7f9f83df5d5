"""Few-shot learning: a few labels for each task, on rows that no other task uses, or on the same rows for all tasks.

>>> labels = {"pulse": Labels(np.arange(6), np.zeros(6)), "visits": Labels(np.arange(6), np.zeros(6))}
>>> shots = choose_shots(labels, 3, np.random.default_rng(0), client="basel")
>>> sorted([*shots["pulse"], *shots["visits"]]) == list(range(6))
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from polyfed.data.labels.column import Labels
from polyfed.errors import DataError

Usable = Mapping[str, Labels]  # of each task that the client has, its labels on training rows


def choose_shots(usable: Usable, shots: int, rng: np.random.Generator, *, client: str) -> dict[str, np.ndarray]:
    """For each task that the client has, `shots` of the training rows that no other task uses, in proportion to its classes."""
    order = sorted(usable, key=lambda task: len(usable[task].at))  # the task with the fewest labels chooses first
    chosen = _draw(order, usable, shots, rng, sparing=False)
    if len(chosen) < len(order):  # balanced draws took what others needed: rows that few can use must go first
        chosen = _draw(order, usable, shots, rng, sparing=True)
    if len(chosen) < len(order):
        task = order[len(chosen)]
        have = int((~np.isin(usable[task].at, _rows(chosen))).sum())
        what = f"{have} training labels are on rows that no other task uses, but shots={shots} needs {shots}"
        remedy = "lower shots, give the client more rows, or take shots_rows = 'same'"
        raise DataError(what, where=f"client {client!r}, task {task!r}", remedy=remedy)
    return chosen


def choose_same_shots(usable: Usable, shots: int, rng: np.random.Generator, *, client: str) -> dict[str, np.ndarray]:
    """For all tasks that the client has the same `shots` training rows, which have a label of each, in proportion to the
    classes of them together.

    >>> labels = {"pulse": Labels(np.arange(6), np.zeros(6)), "visits": Labels(np.arange(3), np.zeros(3))}
    >>> choose_same_shots(labels, 3, np.random.default_rng(0), client="basel")
    {'pulse': array([0, 1, 2]), 'visits': array([0, 1, 2])}
    """
    if not usable:
        return {}
    rows = reduce(np.intersect1d, [labels.at for labels in usable.values()])
    if len(rows) < shots:
        what = f"{len(rows)} training rows have a label of each task, but shots={shots} needs {shots}"
        remedy = "lower shots, give the client more rows, or take shots_rows = 'different'"
        raise DataError(what, where=f"client {client!r}", remedy=remedy)
    classes = np.zeros(len(rows), dtype=np.int64)
    for labels in usable.values():
        if labels.vocabulary is not None:
            by_row = dict(zip(labels.at.tolist(), labels.values.tolist(), strict=True))
            own = np.array([by_row[row] for row in rows.tolist()], dtype=np.int64)
            classes = np.unique(classes * len(labels.vocabulary) + own, return_inverse=True)[1]
    return dict.fromkeys(usable, np.sort(_in_proportion(rows, classes, shots, rng)))


def _draw(
    order: Sequence[str], usable: Usable, shots: int, rng: np.random.Generator, *, sparing: bool
) -> dict[str, np.ndarray]:
    """The rows of each task in turn; ends early at a task that finds too few."""
    chosen: dict[str, np.ndarray] = {}
    for task in order:
        labels = usable[task]
        free = ~np.isin(labels.at, _rows(chosen))
        at = labels.at[free]
        if len(at) < shots:
            break
        classes = np.zeros(len(at)) if labels.vocabulary is None else labels.values[free]
        rivals = np.zeros(len(at))
        if sparing:
            rivals = sum((np.isin(at, usable[other].at) for other in order[len(chosen) + 1 :]), start=rivals)
        limit = np.sort(rivals)[shots - 1]
        sure, tied = at[rivals < limit], rivals == limit
        drawn = _in_proportion(at[tied], classes[tied], shots - len(sure), rng)
        chosen[task] = np.sort(np.concatenate([sure, drawn]))
    return chosen


def _in_proportion(at: np.ndarray, classes: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n of the rows: after a shuffle and a stable sort by class, every (m/n)-th."""
    shuffled = rng.permutation(len(at))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    return at[by_class[np.floor((np.arange(n) + rng.random()) * len(at) / n).astype(np.int64)]]


def _rows(chosen: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *chosen.values()])
