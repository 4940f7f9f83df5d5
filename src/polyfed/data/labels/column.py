"""One task's labels as a user wrote them: which rows have one, what it says, and where a bad one stands.

A CSV file has no types. Labels and names of clients are read as they are written, so that a class called NA, or clients
called 1 and 01, stay what they are; only labels that are all written as plain numbers, or as booleans, become these.

>>> found = LabelColumn(Task("sick", "binary"), ["no", None, "yes", "no"]).read()
>>> found.at, found.values, found.vocabulary
(array([0, 2, 3]), array([0, 1, 0]), ('no', 'yes'))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from polyfed.data.features.matrix import is_missing, plain, row_name, to_floats, to_numpy
from polyfed.data.labels.written import USUAL
from polyfed.data.task import Label, Task
from polyfed.errors import DataError, nearest
from polyfed.kinds import LabelForm

_LABEL_TYPES = {str, int, float, bool}  # what JSON can carry


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels that are there, checked."""

    at: np.ndarray  # the rows that have one
    values: np.ndarray  # numbers; of a proportion task (successes, trials); of a class task positions in the vocabulary
    # the class labels that occur, as they first appeared; None for tasks without classes
    vocabulary: tuple[Label, ...] | None = None

    def first(self, position: int) -> int:
        return int(self.at[(self.values == position).argmax()])


class LabelColumn:
    """A task's labels as given: `values` with one entry (or pair) per row, and which rows are `observed`.

    `place` is what errors call the rows by; without one, a table's column brings its index.
    """

    def __init__(self, task: Task, y: object, place: Callable[[int], str] | None = None) -> None:
        self.task = task
        self.place = place or partial(row_name, index=getattr(y, "index", None))
        self.values = self._as_array(y)
        if self.values.dtype.kind == "O":
            missing = np.array([is_missing(value) for value in self.values.flat], dtype=bool)
            missing = missing.reshape(self.values.shape)
        else:
            missing = self.values != self.values  # NaN
        self.observed = np.flatnonzero(~(missing.any(axis=1) if missing.ndim == 2 else missing))

    def read(self) -> Labels:
        """The labels that are there, or an error about the first that cannot be used."""
        if self.task.form.has_classes:
            labels = self._classes()
            self._reject_strange(labels, labels.vocabulary or ())
            return labels
        return Labels(self.observed, self._pairs() if self.task.form is LabelForm.PAIR else self._targets())

    def error(self, row: int | np.integer, what: str, remedy: str) -> DataError:
        where = f"task {self.task.name!r}, {self.place(int(row))}"
        return DataError(what, where=where, remedy=remedy)

    def _classes(self) -> Labels:
        observed = self.values[self.observed]
        if observed.dtype.kind in "biuf":  # at most one Python object for each class, not for each row
            distinct, first, codes = np.unique(observed, return_index=True, return_inverse=True)
            appeared = np.argsort(first)
            order = np.empty_like(appeared)
            order[appeared] = np.arange(len(appeared))
            vocabulary, codes = distinct[appeared].tolist(), order[codes.reshape(-1)]
        else:
            labels = [plain(value) for value in observed.tolist()]
            labels = [v.decode(errors="backslashreplace") if isinstance(v, bytes) else v for v in labels]
            self._reject_odd_types(labels)
            position: dict[Any, int] = {}
            codes = np.array([position.setdefault(label, len(position)) for label in labels], dtype=np.int64)
            vocabulary = list(position)
        found = Labels(self.observed, codes, tuple(vocabulary))
        for code, label in enumerate(vocabulary):
            if type(label) is float and math.isinf(label):
                raise self.error(found.first(code), f"label {label} is not finite", "correct it or drop the row")
        return found

    def _reject_strange(self, labels: Labels, vocabulary: tuple[Label, ...]) -> None:
        """An error about the first label that is none of the task's classes, or a third one of a binary task."""
        if (classes := self.task.classes) is not None:
            for position, label in enumerate(vocabulary):
                if label not in classes:
                    known = f"known are {', '.join(map(repr, classes))}"  # with quotes or without: 1 and '1' differ
                    if all(isinstance(one, str) for one in (label, *classes)):
                        known = nearest(label, map(str, classes))
                    raise self.error(labels.first(position), f"label {label!r} is not one of the classes", known)
        elif self.task.form is LabelForm.BINARY and len(vocabulary) > 2:
            first, second, third = vocabulary[:3]
            what = f"label {third!r} is a third class after {first!r} and {second!r}"
            remedy = "declare the task multiclass or correct the label"
            if marker := next((label for label in vocabulary if label in USUAL), None):
                remedy += f"; if {marker!r} means that there is no label, name it in missing (--missing)"
            raise self.error(labels.first(2), what, remedy)

    def _reject_odd_types(self, labels: list[Any]) -> None:
        if set(map(type, labels)) <= _LABEL_TYPES:
            return
        for row, label in zip(self.observed, labels, strict=True):
            if type(label) not in _LABEL_TYPES:
                what = f"label {label!r} is a {type(label).__name__}, not text, a number or a boolean"
                raise self.error(row, what, "convert the labels, for example with str()")

    def _numbers(self) -> np.ndarray:
        numbers, offender = to_floats(self.values[self.observed])
        if offender is not None:
            what = f"label {plain(self.values[self.observed][offender])!r} is not a number"
            raise self.error(self.observed[offender[0]], what, "correct it or drop the row")
        infinite = np.isinf(numbers)
        if infinite.any():
            at = np.unravel_index(infinite.argmax(), infinite.shape)
            what = f"label {numbers[at]} is not finite"
            raise self.error(self.observed[at[0]], what, "correct it or mark it missing with NaN")
        return numbers

    def _targets(self) -> np.ndarray:
        numbers = self._numbers()
        if self.task.form is LabelForm.COUNT:
            bad = (numbers < 0) | (numbers != np.floor(numbers))
            if bad.any():
                what = f"count {numbers[bad][0]:g} is not a whole number from 0 up"
                raise self.error(int(self.observed[bad][0]), what, "correct it or declare the task regression")
        return numbers

    def _pairs(self) -> np.ndarray:
        numbers = self._numbers().reshape(-1, 2)
        k, n = numbers.T
        uneven = (k < 0) | (k != np.floor(k)) | (n != np.floor(n))
        bad = uneven | (n < 1) | (k > n)
        if bad.any():
            first = bad.argmax()
            pair = f"({k[first]:g}, {n[first]:g})"
            if uneven[first]:
                what, remedy = "is not made of whole numbers from 0 up", "give (successes, trials)"
            elif n[first] < 1:
                what, remedy = "has no trials", "mark it missing with NaN"
            else:
                what, remedy = "has more successes than trials", "give (successes, trials)"
            raise self.error(int(self.observed[first]), f"label {pair} {what}", remedy)
        return numbers

    def _as_array(self, y: Any) -> np.ndarray:
        pairs = self.task.form is LabelForm.PAIR
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
        if self.task.form is LabelForm.PAIR:
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
