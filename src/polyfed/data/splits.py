"""Which rows of a client are for training, validation and testing. The seed and the client's name decide, nothing else.

>>> from polyfed.data.raw import read_client
>>> sick = Task("sick", "binary")
>>> raw = read_client("basel", ([[float(i)] for i in range(10)], {"sick": ["no", "yes"] * 5}), [sick])
>>> division = divide([sick], raw, Split(test=0.2), seed=0, client="basel")
>>> len(division.train), division.test % 2  # a healthy and a sick one
(8, array([...]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from polyfed.data.few_shot import choose_shots
from polyfed.data.raw import RawClient
from polyfed.data.task import Task
from polyfed.errors import ConfigError
from polyfed.seeds import Stream


@dataclass(frozen=True)
class Split:
    """How every client divides its rows.

    test, validation   fractions of the rows, balanced over the classes
    shots              keep only so many training labels of each task, no two tasks on the same row, and drop the
                       training rows that are left without a label (few-shot learning); None keeps them all

    >>> Split(test=1.2)
    Traceback (most recent call last):
    polyfed.errors.ConfigError: split: test=1.2 is not a fraction; give a number from 0 up to, but not including, 1.
    """

    test: float = 0.2
    validation: float = 0.0
    shots: int | None = None

    def __post_init__(self) -> None:
        for option in ("test", "validation"):
            value = getattr(self, option)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < 1:
                raise ConfigError(
                    f"{option}={value!r} is not a fraction",
                    where="split",
                    remedy="give a number from 0 up to, but not including, 1",
                )
        if self.test + self.validation >= 1:
            raise ConfigError(
                f"test={self.test!r} and validation={self.validation!r} leave no row for training",
                where="split",
                remedy="let them sum to less than 1",
            )
        shots = self.shots
        if shots is not None and (not isinstance(shots, Integral) or isinstance(shots, bool) or shots < 1):
            raise ConfigError(
                f"shots={shots!r} is not a number of labels", where="split", remedy="give a whole number from 1 up"
            )


DEFAULT_SPLIT = Split()


@dataclass(frozen=True, eq=False)
class Division:
    """The rows of each part, in ascending order, and at which of them few-shot learning left each task its labels."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    shots: Mapping[str, np.ndarray] | None = None

    def training(self, raw: RawClient) -> RawClient:
        """What the client may learn from."""
        return raw.take(self.train, self.shots)


def divide(tasks: Sequence[Task], raw: RawClient, split: Split, *, seed: int, client: str) -> Division:
    """Divide a client's rows, stratified on the joint classes of its binary and multiclass tasks.

    Rows that the client itself keeps for testing are its test part. A client always keeps a row for training.
    """
    rng = Stream(seed, "split", client=client).numpy()
    n_own = len(raw) - raw.n_test
    shuffled = rng.permutation(n_own)
    order = shuffled[np.lexsort([key[shuffled] for key in reversed(_strata(tasks, raw))])]
    test_fraction = 0.0 if raw.n_test else float(split.test)
    tested = _every(test_fraction, n_own, rng.random())
    rest = order[~tested]
    validated = _every(float(split.validation) / (1.0 - test_fraction), len(rest), rng.random())
    train, validation, test = rest[~validated], rest[validated], order[tested]
    if len(train) == 0:  # a client that cannot learn is no member
        if len(test):
            train, test = test[:1], test[1:]
        else:
            train, validation = validation[:1], validation[1:]
    if raw.n_test:
        test = np.arange(n_own, len(raw))
    train, validation, test = np.sort(train), np.sort(validation), np.sort(test)
    if split.shots is None:
        return Division(train, validation, test)
    shots = choose_shots([task.name for task in tasks], raw.labels, train, int(split.shots), rng, client=client)
    kept = np.unique(np.concatenate([*shots.values(), np.empty(0, dtype=np.int64)]))
    return Division(kept, validation, test, shots)


def _every(fraction: float, n: int, start: float) -> np.ndarray:
    """Systematic sampling: of any run of m neighbours, floor(m·fraction) or one more are chosen."""
    steps = np.floor(np.arange(n + 1) * fraction + start)
    return np.diff(steps) > 0


def _strata(tasks: Sequence[Task], raw: RawClient) -> list[np.ndarray]:
    """Sort keys of the rows: the class of each class task first, then which of the other tasks have a label."""
    classes, others = [], []
    for task in tasks:
        key = np.zeros(len(raw), dtype=np.int64)
        if task.name in raw.labels:
            labels = raw.labels[task.name]
            key[labels.at] = 1 if labels.vocabulary is None else 1 + labels.values
        (classes if task.kind in ("binary", "multiclass") else others).append(key)
    return [*classes, *others]
