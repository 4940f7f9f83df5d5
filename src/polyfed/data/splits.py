"""Which rows of a client are for training, validation and testing. The seed and the client's name decide, nothing else.

>>> from polyfed.data.raw import read_client
>>> sick = Task("sick", "binary")
>>> raw = read_client("basel", ([[float(i)] for i in range(10)], {"sick": ["no", "yes"] * 5}), [sick])
>>> division = divide([sick], raw, Split(test=0.2), seed=0, client="basel")
>>> len(division.train), division.test % 2  # a healthy and a sick one
(8, array([...]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.features.dates import are_dates, are_durations, duration_days, read_dates
from polyfed.data.features.matrix import at
from polyfed.data.few_shot import choose_same_shots, choose_shots
from polyfed.data.labels.column import Labels
from polyfed.data.raw import RawClient
from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError, nearest
from polyfed.seeds import Stream

if TYPE_CHECKING:
    import pandas as pd

SHOTS_ROWS = ("different", "same")
TRAIN, VALIDATION, TEST = 0, 1, 2
_PARTS = {
    **dict.fromkeys(("train", "training", "learn"), TRAIN),
    **dict.fromkeys(("validation", "valid", "val", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing", "holdout", "hold-out"), TEST),
}


@dataclass(frozen=True)
class Split:
    """How every client divides its rows.

    test, validation   fractions of the rows, balanced over the classes
    shots              keep only this number of training labels of each task, and drop the training rows that are left without a
                       label (few-shot learning); None keeps them all
    shots_rows         "different": no two tasks have them on the same row; "same": all tasks on the same rows
    by                 a column of dates or numbers: the latest rows of each client are for testing, those before for validation
    group              a column: the rows of a client with the same value (a patient's) stay in one part
    column             a column that says train, validation or test; the fractions are not used then

    >>> Split(test=1.2)
    Traceback (most recent call last):
    polyfed.errors.ConfigError: split: test=1.2 is not a fraction; give a number from 0 up to, but not including, 1.
    """

    test: float = 0.2
    validation: float = 0.0
    shots: int | None = None
    shots_rows: str = "different"
    by: str | None = None
    group: str | None = None
    column: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table that it needs, by what they are for."""
        return {role: name for role in ("by", "group", "column") if (name := getattr(self, role)) is not None}

    @at("split")
    def __post_init__(self) -> None:
        for option in ("test", "validation"):
            value = getattr(self, option)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < 1:
                remedy = "give a number from 0 up to, but not including, 1"
                raise ConfigError(f"{option}={value!r} is not a fraction", remedy=remedy)
        if self.test + self.validation >= 1:
            what = f"test={self.test!r} and validation={self.validation!r} leave no row for training"
            raise ConfigError(what, remedy="let them sum to less than 1")
        shots = self.shots
        if shots is not None and (not isinstance(shots, Integral) or isinstance(shots, bool) or shots < 1):
            raise ConfigError(f"shots={shots!r} is not a number of labels", remedy="give a whole number from 1 up")
        if self.shots_rows not in SHOTS_ROWS:
            remedy = nearest(self.shots_rows, SHOTS_ROWS)
            raise ConfigError(f"shots_rows={self.shots_rows!r} is not known", remedy=remedy)
        if len(self.columns) > 1:
            first, second = list(self.columns.items())[:2]
            what = f"rows cannot be split both by {first[1]!r} ({first[0]}) and by {second[1]!r} ({second[0]})"
            raise ConfigError(what, remedy="choose one")


DEFAULT_SPLIT = Split()


@dataclass(frozen=True, eq=False)
class Division:
    """The rows of each part, in ascending order, and at which of them few-shot learning left each task its labels."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    shots: Mapping[str, np.ndarray] | None = None

    def training(self, raw: RawClient) -> RawClient:
        return raw.take(self.train, self.shots)


def divide(tasks: Sequence[Task], raw: RawClient, split: Split, *, seed: int, client: str) -> Division:
    """Divide a client's rows, stratified on the joint classes of its binary and multiclass tasks unless a column decides.

    Rows that the client itself keeps for testing are its test part. A client always keeps a row for training.
    """
    rng = Stream(seed, "split", client=client).numpy()
    test_fraction = 0.0 if raw.n_test else float(split.test)
    parts = _parts(tasks, raw, split, test_fraction, rng)
    if raw.n_test:
        parts = (*parts[:2], np.arange(raw.n_own, len(raw)))
    train, validation, test = (np.sort(rows) for rows in parts)
    if len(train) == 0:
        what = f"column {split.column!r} leaves no row for training"
        raise DataError(what, where=f"client {client!r}", remedy="give the client rows to train on, or leave it out")
    if split.shots is None:
        return Division(train, validation, test)
    choose = choose_shots if split.shots_rows == "different" else choose_same_shots
    usable = {}
    for task in tasks:
        if (own := raw.labels.get(task.name)) is not None and len(own.at):
            kept = np.isin(own.at, train)
            usable[task.name] = Labels(own.at[kept], own.values[kept], own.vocabulary)
    shots = choose(usable, int(split.shots), rng, client=client)
    kept = np.unique(np.concatenate([*shots.values(), np.empty(0, dtype=np.int64)]))
    return Division(kept, validation, test, shots)


Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def _parts(
    tasks: Sequence[Task], raw: RawClient, split: Split, test_fraction: float, rng: np.random.Generator
) -> Parts:
    """The rows for training, validation and testing, among those that the client does not keep for testing itself."""
    n_own = raw.n_own
    for role, name in split.columns.items():
        if role not in raw.keys:
            what = f"{role}={name!r} names a column, but the clients were not read from a table"
            raise ConfigError(what, where="split", remedy="use Federation.from_table, or leave it out")
    if split.column is not None:
        part = raw.keys["column"][:n_own]
        return np.flatnonzero(part == TRAIN), np.flatnonzero(part == VALIDATION), np.flatnonzero(part == TEST)
    if split.by is not None:
        order = np.argsort(raw.keys["by"][:n_own], kind="stable")
        return _cut(order, np.arange(n_own), test_fraction, split.validation)
    shuffled = rng.permutation(n_own)
    if split.group is not None:  # whole groups, in an order that chance decides
        groups, member = np.unique(raw.keys["group"][:n_own][shuffled], return_inverse=True)
        place = rng.permutation(len(groups))[member]
        order = shuffled[np.argsort(place, kind="stable")]
        return _cut(order, np.sort(place), test_fraction, split.validation)
    order = shuffled[np.lexsort([key[shuffled] for key in reversed(_strata(tasks, raw))])]
    tested = _every(test_fraction, n_own, rng.random())
    rest = order[~tested]
    validated = _every(float(split.validation) / (1.0 - test_fraction), len(rest), rng.random())
    train, validation, test = rest[~validated], rest[validated], order[tested]
    if len(train) == 0:  # a client that cannot learn is no member
        if len(test):
            train, test = test[:1], test[1:]
        else:
            train, validation = validation[:1], validation[1:]
    return train, validation, test


def _cut(order: np.ndarray, block: np.ndarray, test: float, validation: float) -> Parts:
    """Ordered rows cut into training, validation and test, near these shares but never within a block; the first one trains."""
    cuts = np.append(np.flatnonzero(np.diff(block)) + 1, len(order))
    shares = (1.0 - test - validation, 1.0 - test)
    first, second = (int(cuts[np.abs(cuts - share * len(order)).argmin()]) for share in shares)
    return order[:first], order[first:second], order[second:]


def _every(fraction: float, n: int, start: float) -> np.ndarray:
    """Systematic sampling: of any run of m neighbours, floor(m·fraction) or one more are chosen."""
    return np.diff(np.floor(np.arange(n + 1) * fraction + start)) > 0


def _strata(tasks: Sequence[Task], raw: RawClient) -> list[np.ndarray]:
    """Sort keys of the rows: the class of each class task first, then which of the other tasks have a label."""
    classes, others = [], []
    for task in tasks:
        key = np.zeros(len(raw), dtype=np.int64)
        if task.name in raw.labels:
            labels = raw.labels[task.name]
            key[labels.at] = 1 if labels.vocabulary is None else 1 + labels.values
        (classes if task.form.has_classes else others).append(key)
    return [*classes, *others]


def read_key(role: str, values: pd.Series, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    """A number for each row of a table, from the column by which its rows are divided: when it was, which group it is of, or
    which part it belongs to.

    >>> import pandas as pd
    >>> read_key("column", pd.Series(["train", "Test", "val"]), "fold", "row {}".format).tolist()
    [0, 2, 1]
    """

    def rejected(what: str, row: int, remedy: str) -> DataError:
        return DataError(f"column {name!r}, by which the rows are split, {what}", where=row_name(row), remedy=remedy)

    gaps = values.isna().to_numpy()
    if gaps.any():
        raise rejected("is empty", int(gaps.argmax()), "fill it in, drop the row, or split otherwise")
    if role == "column":
        known = {value: _PARTS.get(str(value).strip().lower()) for value in values.unique()}
        for value, part in known.items():
            if part is None:
                row = int((values == value).to_numpy().argmax())
                raise rejected(f"is {str(value)!r}", row, "give train, validation or test")
        return values.map(known).to_numpy(dtype=np.int64)
    if role == "group":
        try:
            return values.factorize()[0].astype(np.int64)
        except TypeError:  # lists and dictionaries
            raise rejected("holds what is no name of a group", 0, "give names or numbers") from None
    if values.dtype.kind in "iuf":
        return values.to_numpy(dtype=np.float64)
    if are_dates(values):
        return read_dates(values, name, row_name).astype("datetime64[us]").astype(np.float64)
    if are_durations(values):
        return duration_days(values)
    raise rejected(f"is {str(values.iloc[0])!r}, which is neither a date nor a number", 0, "split otherwise")
