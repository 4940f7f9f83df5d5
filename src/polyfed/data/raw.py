"""One client's data before round 0: its features as they are, and the labels that are there, checked.

>>> raw = read_client("basel", ([[1.0], [2.0]], {"sick": ["no", None]}), [Task("sick", "binary")])
>>> len(raw), raw.labels["sick"].at, raw.labels["sick"].vocabulary
(2, array([0]), ('no',))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyfed.data.features.raw import RawFeatures, read_features, stack_features
from polyfed.data.labels.column import LabelColumn, Labels
from polyfed.data.task import Task
from polyfed.errors import DataError, UnknownNameError, nearest

Given = dict[str | None, tuple[Any, Any]]  # task → (X, y)


@dataclass(frozen=True, eq=False)
class RawClient:
    """What one client has: features, labels of its tasks, and how many of its last rows it keeps for testing.

    `keys` are numbers of the rows by which they are divided (`splits.read_key`), if a table has such a column.
    """

    features: RawFeatures
    labels: Mapping[str, Labels]
    n_test: int = 0
    keys: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def n_own(self) -> int:
        """Rows before those for testing."""
        return len(self) - self.n_test

    def take(self, rows: np.ndarray, labelled: Mapping[str, np.ndarray] | None = None) -> RawClient:
        """Some of the rows, with all their labels or only those of each task at the rows in `labelled`."""
        new_place = np.full(len(self), -1)
        new_place[rows] = np.arange(len(rows))
        labels = {}
        for task, old in self.labels.items():
            at = new_place[old.at]
            kept = at >= 0
            if labelled is not None:
                kept &= np.isin(old.at, labelled.get(task, ()))
            labels[task] = Labels(at[kept], old.values[kept], old.vocabulary)
        return RawClient(self.features.take(rows), labels, keys={key: own[rows] for key, own in self.keys.items()})

    def with_test(self, test: RawClient, where: str) -> RawClient:
        """The same client, with further rows that are for testing."""
        features = stack_features([self.features, test.features], where=where)
        labels = dict(self.labels)
        for task, extra in test.labels.items():
            extra = Labels(extra.at + len(self), extra.values, extra.vocabulary)
            labels[task] = _joined(labels[task], extra) if task in labels else extra
        return RawClient(features, labels, n_test=len(test))


def read_client(name: str, data: Any, tasks: Sequence[Task], only: Collection[str] | None = None) -> RawClient:
    """A client as users give it: {task: (X, y)}, or (X, {task: y}) if all tasks share their inputs.

    `only` are the columns of tables that matter, if that is known already.
    """
    where = f"client {name!r}"
    given = by_task(data, [task.name for task in tasks], where)
    if not given:
        raise DataError("has no data", where=where, remedy="give at least one task, or leave the client out")
    with at_client(name):
        raw = read_given(given, tasks, only)
    if not len(raw):
        raise DataError("has no rows", where=where, remedy="give at least one, or leave the client out")
    return raw


def read_given(
    given: Given, tasks: Sequence[Task], only: Collection[str] | None = None, *, where: str = ""
) -> RawClient:
    """Features and labels of each task, one task's rows below another's."""
    known = {task.name: task for task in tasks}
    start: dict[int, int] = {}  # an X that several tasks share is kept once: id → its first row
    parts: list[RawFeatures] = []
    labels: dict[str, Labels] = {}
    n_rows = 0
    for task, (X, y) in given.items():
        if id(X) not in start:
            place = "features" + (f" of task {task!r}" if task else "")
            parts.append(read_features(X, where=place, only=only))
            start[id(X)] = n_rows
            n_rows += len(parts[-1])
        if task is None or y is None:  # inputs without labels
            continue
        found = read_labels(known[task], y, len(X))
        labels[task] = Labels(found.at + start[id(X)], found.values, found.vocabulary)
    return RawClient(stack_features(parts, where=where), labels)


def read_labels(task: Task, y: object, n_rows: int, place: Callable[[int], str] | None = None) -> Labels:
    """The labels of one task that are there, checked as far as one client can check them."""
    column = LabelColumn(task, y, place)
    if len(column.values) != n_rows:
        what = f"{len(column.values)} labels for {n_rows} rows of features"
        remedy = "give a label for each row, and NaN or None where it is missing"
        raise DataError(what, where=f"task {task.name!r}", remedy=remedy)
    return column.read()


@contextmanager
def at_client(name: str) -> Iterator[None]:
    """Errors about data inside this block say at which client it is."""
    try:
        yield
    except DataError as error:
        where = f"client {name!r}, {error.where}" if error.where else f"client {name!r}"
        raise DataError(error.what, where=where, remedy=error.remedy) from None


def by_task(data: Any, known: Sequence[str], where: str) -> Given:
    """Task → (X, y). The key None holds inputs to which no task has labels."""
    given: Given
    if isinstance(data, Mapping):
        for task, pair in data.items():
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise DataError("is not a pair", where=f"{where}, task {task!r}", remedy="give (X, y)")
        given = {task: (pair[0], pair[1]) for task, pair in data.items()}
    elif isinstance(data, (tuple, list)) and len(data) == 2 and (isinstance(data[1], Mapping) or _is_table(data[1])):
        X, labels = data
        # A table of labels may have other columns too; a dictionary may not.
        names = [name for name in known if name in labels.columns] if _is_table(labels) else list(labels)
        given = {name: (X, labels[name]) for name in names} or {None: (X, None)}
    else:
        what = f"is given as {type(data).__name__}"
        raise DataError(what, where=where, remedy="give {task: (X, y)} or (X, {task: y})")
    for task in given:
        if task is not None and task not in known:
            raise UnknownNameError(f"task {task!r} is unknown", where=where, remedy=nearest(task, known))
    return given


def _is_table(data: Any) -> bool:
    return hasattr(data, "columns")


def _joined(first: Labels, second: Labels) -> Labels:
    at = np.concatenate([first.at, second.at])
    if first.vocabulary is None or second.vocabulary is None:
        return Labels(at, np.concatenate([first.values, second.values]))
    vocabulary = list(dict.fromkeys([*first.vocabulary, *second.vocabulary]))
    renumbered = np.array([vocabulary.index(label) for label in second.vocabulary], dtype=np.int64)
    return Labels(at, np.concatenate([first.values, renumbered[second.values]]), tuple(vocabulary))
