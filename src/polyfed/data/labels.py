"""The border between labels as users have them and the numbers that models compute with.

Inside, a binary label is -1 or +1, a class is its position, a target has mean 0 and spread 1, and a missing
label is simply not there. Outside, users keep their booleans, words, units and gaps.

>>> codec = LabelCodec.learn(Task("sick", "binary"), ["no", None, "yes"])
>>> codec.encode(["yes", "no", None])
(array([0, 1]), array([ 1., -1.]))
>>> codec.decode_labels([1, 0])
array(['yes', 'no'], dtype='<U3')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.data.features import FeatureScaler, is_missing, plain, row_name, to_floats, to_numpy
from polyfed.data.task import Task
from polyfed.errors import DataError, UsageError, nearest

_LABEL_TYPES = (str, int, float, bool)  # what JSON can carry


@dataclass(frozen=True)
class LabelCodec:
    """How one task's labels are coded: its classes, or the shift and scale of its targets."""

    task: Task
    classes: tuple[Any, ...] | None
    shift: float
    scale: float

    @classmethod
    def learn(cls, task: Task, y: Any, *, scale: bool = True) -> LabelCodec:
        """Learn what the task leaves open from `y`, which may have gaps, be empty, or be None.

        Targets are standardised and counts get their mean as unit, unless `scale` is False.
        """
        if task.kind in ("binary", "multiclass"):
            classes = task.classes if task.classes is not None else _learn_classes(_Column(task, y))
            return cls(task, classes, 0.0, 1.0)
        if not scale or task.kind == "proportion":
            return cls(task, None, 0.0, 1.0)
        targets = _targets(_Column(task, y))
        if task.kind == "count":
            mean = float(targets.mean()) if len(targets) else 0.0
            return cls(task, None, 0.0, mean if mean > 0 else 1.0)
        learned = FeatureScaler.learn(targets[:, None])
        return cls(task, None, float(learned.mean[0]), float(learned.scale[0]))

    def encode(self, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the rows that have a label, and those labels as numbers.

        regression, robust: (y - shift) / scale;  count: the counts;  binary: -1 or +1;
        multiclass: the position of the class;  proportion: two columns, successes and trials
        """
        column = _Column(self.task, y)
        if self.task.kind == "proportion":
            return column.observed, _pairs(column)
        if self.classes is None:
            coded = _targets(column)
            if self.task.kind != "count":
                scaler = FeatureScaler(np.array([self.shift]), np.array([self.scale]))
                coded = scaler.apply(coded[:, None])[:, 0]
            return column.observed, coded
        position = {label: float(i) for i, label in enumerate(self.classes)}
        labels = column.labels()
        for row, label in zip(column.observed, labels, strict=True):
            if label not in position:
                raise column.error(row, f"label {label!r} is not one of the classes", _known(label, self.classes))
        coded = np.array([position[label] for label in labels], dtype=np.float64)
        return column.observed, 2 * coded - 1 if self.task.kind == "binary" else coded

    def decode_labels(self, index_array: Any) -> np.ndarray:
        """The users' labels at these class positions (of a binary task also from the coded -1 and +1)."""
        if self.classes is None:
            raise UsageError(f"a {self.task.kind} task has no classes", where=f"task {self.task.name!r}")
        index = to_numpy(index_array).astype(np.int64)
        if self.task.kind == "binary":
            index = np.where(index == -1, 0, index)
        if index.size and (index.min() < 0 or index.max() >= len(self.classes)):
            raise DataError(
                f"class positions run from {index.min()} to {index.max()}",
                where=f"task {self.task.name!r}",
                remedy=f"with {len(self.classes)} classes they are 0 to {len(self.classes) - 1}",
            )
        return _class_array(self.classes)[index]

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        classes = None if self.classes is None else list(self.classes)
        return {"task": self.task.to_dict(), "classes": classes, "shift": self.shift, "scale": self.scale}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> LabelCodec:
        """The codec that `to_dict` described."""
        classes = described["classes"]
        return cls(
            Task.from_dict(described["task"]),
            None if classes is None else tuple(classes),
            float(described["shift"]),
            float(described["scale"]),
        )


class _Column:
    """A task's labels as read: `values` with one entry (or pair) per row, and which rows are `observed`."""

    def __init__(self, task: Task, y: Any) -> None:
        self.task = task
        self.index = getattr(y, "index", None)
        self.values = self._read(y)
        if self.values.dtype.kind == "O":
            missing = np.array([is_missing(value) for value in self.values.flat], dtype=bool)
            missing = missing.reshape(self.values.shape)
        else:
            missing = self.values != self.values  # NaN
        self.observed = np.flatnonzero(~(missing.any(axis=1) if missing.ndim == 2 else missing))

    def error(self, row: int | np.integer, what: str, remedy: str) -> DataError:
        where = f"task {self.task.name!r}, {row_name(int(row), self.index)}"
        return DataError(what, where=where, remedy=remedy)

    def numbers(self) -> np.ndarray:
        """The observed entries as finite floats."""
        numbers, offender = to_floats(self.values[self.observed])
        if offender is not None:
            value = plain(self.values[self.observed][offender])
            raise self.error(
                self.observed[offender[0]], f"label {value!r} is not a number", "correct it or drop the row"
            )
        infinite = np.isinf(numbers)
        if infinite.any():
            at = np.unravel_index(infinite.argmax(), infinite.shape)
            raise self.error(
                self.observed[at[0]],
                f"label {numbers[at]} is not finite",
                "correct it or mark it missing with NaN",
            )
        return numbers

    def labels(self) -> list[Any]:
        """The observed entries as Python text, numbers or booleans."""
        labels = [_as_text(plain(value)) for value in self.values[self.observed].tolist()]
        for row, label in zip(self.observed, labels, strict=True):
            if type(label) not in _LABEL_TYPES:
                what = f"label {label!r} is a {type(label).__name__}, not text, a number or a boolean"
                raise self.error(row, what, "convert the labels, for example with str()")
            if type(label) is float and math.isinf(label):
                raise self.error(row, f"label {label} is not finite", "correct it or drop the row")
        return labels

    def _read(self, y: Any) -> np.ndarray:
        pairs = self.task.kind == "proportion"
        if y is None:
            return np.empty((0, 2) if pairs else 0)
        if isinstance(y, (str, bytes, Mapping, Set)) or not isinstance(y, Iterable):
            raise self._shape_error(f"labels are a {type(y).__name__}, not a column")
        array = to_numpy(y) if hasattr(y, "dtype") or hasattr(y, "dtypes") else _from_list(y)
        if array.dtype.kind in "mM":
            array = array.astype(f"{array.dtype.kind}8[us]")  # nanoseconds would become integers
        if array.dtype.kind not in "biuf":
            array = array.astype(object)
        if pairs and array.ndim == 1:
            array = self._split_pairs(array)
        elif not pairs and array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != (2 if pairs else 1) or (pairs and array.shape[1] != 2):
            raise self._shape_error(f"labels have shape {array.shape}")
        return array

    def _split_pairs(self, array: np.ndarray) -> np.ndarray:
        split = np.full((len(array), 2), None, dtype=object)
        for row, pair in enumerate(array):
            if isinstance(pair, (tuple, list, np.ndarray)) and len(pair) == 2:
                split[row] = pair
            elif not is_missing(pair):
                raise self.error(row, f"label {plain(pair)!r} is not a pair", "give (successes, trials) as in (3, 10)")
        return split

    def _shape_error(self, what: str) -> DataError:
        remedy = "give one label for each row"
        if self.task.kind == "proportion":
            remedy = "give two columns, successes and trials, as in [[3, 10], [0, 4]]"
        return DataError(what, where=f"task {self.task.name!r}", remedy=remedy)


def _from_list(y: Iterable[Any]) -> np.ndarray:
    """Rows as objects: numpy would make text of every entry of a list if one entry is text."""
    rows = [plain(to_numpy(row) if hasattr(row, "detach") else row) for row in y]
    lengths = {len(row) if isinstance(row, (list, tuple, np.ndarray)) else -1 for row in rows}
    if len(lengths) == 1 and -1 not in lengths:
        return np.array(rows, dtype=object)
    array = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        array[i] = row
    return array


def _targets(column: _Column) -> np.ndarray:
    numbers = column.numbers()
    if column.task.kind == "count":
        for row, number in zip(column.observed, numbers, strict=True):
            if number < 0 or number != np.floor(number):
                what = f"count {number:g} is not a whole number from 0 up"
                raise column.error(row, what, "correct it or declare the task regression")
    return numbers


def _pairs(column: _Column) -> np.ndarray:
    numbers = column.numbers().reshape(-1, 2)
    for row, (k, n) in zip(column.observed, numbers, strict=True):
        pair = f"({k:g}, {n:g})"
        if k < 0 or k != np.floor(k) or n != np.floor(n):
            raise column.error(row, f"label {pair} is not made of whole numbers from 0 up", "give (successes, trials)")
        if n < 1:
            raise column.error(row, f"label {pair} has no trials", "mark it missing with NaN")
        if k > n:
            raise column.error(row, f"label {pair} has more successes than trials", "give (successes, trials)")
    return numbers


def _learn_classes(column: _Column) -> tuple[Any, ...]:
    task = column.task
    seen: dict[Any, None] = {}  # a set that remembers the order
    for row, label in zip(column.observed, column.labels(), strict=True):
        seen.setdefault(label)
        if task.kind == "binary" and len(seen) == 3:
            first, second, _ = seen
            what = f"label {label!r} is a third class after {first!r} and {second!r}"
            raise column.error(row, what, "declare the task multiclass or correct the label")
    classes = _in_order(_tidy(list(seen)))
    if len(classes) >= 2:
        return classes
    if task.kind == "binary":
        if not classes:
            return (0, 1)
        for usual in ((False, True), (0, 1), (-1, 1)):
            if classes[0] in usual and type(classes[0]) is type(usual[0]):
                return usual
        what = f"all labels are {classes[0]!r}, so the other class is unknown"
        raise column.error(column.observed[0], what, "give the task classes=(negative, positive)")
    labels = f"the only label is {classes[0]!r}" if classes else "there are no labels"
    raise DataError(
        f"{labels}, so the classes are unknown",
        where=f"task {task.name!r}",
        remedy="give the task classes=(...) with all of them",
    )


def _tidy(labels: list[Any]) -> list[Any]:
    """Undo what storage did: a gap turns a column of 0 and 1 into 0.0 and 1.0, a number turns True into 1."""
    if all(type(label) is bool for label in labels):
        return labels
    numbers = [label for label in labels if not isinstance(label, str)]
    whole = all(float(number).is_integer() for number in numbers)
    return [label if isinstance(label, str) or not whole else int(label) for label in labels]


def _in_order(labels: list[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(labels))
    except TypeError:  # numbers among words: any order will do that is always the same
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, str(label))))


def _as_text(label: Any) -> Any:
    return label.decode(errors="backslashreplace") if isinstance(label, bytes) else label


def _known(label: Any, classes: tuple[Any, ...]) -> str:
    if all(isinstance(known, str) for known in (label, *classes)):
        return nearest(label, classes)
    return f"known are {', '.join(map(repr, classes))}"  # without quotes, so that 1 and '1' are told apart


def _class_array(classes: tuple[Any, ...]) -> np.ndarray:
    types = {type(label) for label in classes}
    if len(types) == 1 or types == {int, float}:
        natural = np.array(classes)
        if natural.tolist() == list(classes):  # text that ends in a null character would lose it
            return natural
    return np.array(classes, dtype=object)
