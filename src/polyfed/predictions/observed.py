"""Observed labels, as users write them, checked against the rows that were predicted.

>>> counts([3, 0], n=2)
array([3., 0.])
>>> class_positions(["yes", "no"], ("no", "yes"), n=2)
array([1, 0])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.errors import DataError, nearest


def as_floats(value: Any) -> np.ndarray:
    """Numbers of any library as a float64 array."""
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=np.float64)


def numbers(y: Any, *, n: int) -> np.ndarray:
    """One finite number for each of the n rows."""
    return _finite(y, (n,), "give one label for each row predicted")


def counts(y: Any, *, n: int) -> np.ndarray:
    """One whole number from 0 up for each of the n rows."""
    y = numbers(y, n=n)
    _reject((y < 0) | (y != np.floor(y)), y, "is not a whole number from 0 up", "correct it or drop the row")
    return y


def pairs(y: Any, *, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Successes and trials of the n rows."""
    remedy = "give two columns, successes and trials, as in [[3, 10], [0, 4]]"
    y = _finite(y, (n, 2), remedy)
    successes, trials = y.T
    _reject((y != np.floor(y)).any(axis=1) | (successes < 0), y, "is not made of whole numbers from 0 up", remedy)
    _reject(trials < 1, y, "has no trials", "drop the row")
    _reject(successes > trials, y, "has more successes than trials", remedy)
    return successes, trials


def class_positions(y: Any, classes: tuple[Any, ...], *, n: int) -> np.ndarray:
    """Which of the classes each of the n labels is."""
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    if len(labels) != n:
        remedy = "give one label for each row predicted"
        raise DataError(f"{len(labels)} labels do not fit {n} predictions", remedy=remedy)
    position = {label: i for i, label in enumerate(classes)}
    try:
        found = np.fromiter((position.get(label, -1) for label in labels), dtype=np.intp, count=n)
    except TypeError as error:  # a list in place of a label
        raise DataError("the labels are not one column", remedy="give one label for each row predicted") from error
    if n and found.min() < 0:
        row = int(found.argmin())
        what = f"label {labels[row]!r} is not one of the classes"
        known = f"known are {', '.join(map(repr, classes))}"  # so that 1 and '1' differ
        are_texts = all(isinstance(label, str) for label in (labels[row], *classes))
        raise DataError(what, where=f"row {row}", remedy=nearest(labels[row], classes) if are_texts else known)
    return found


def _finite(y: Any, shape: tuple[int, ...], remedy: str) -> np.ndarray:
    try:
        y = as_floats(y)
    except (TypeError, ValueError) as error:
        raise DataError("the labels are not all numbers", remedy=remedy) from error
    if y.shape != shape and not y.size == shape[0] == 0:
        raise DataError(f"labels of shape {y.shape} do not fit {shape[0]} predictions", remedy=remedy)
    y = y.reshape(shape)
    _reject(~np.isfinite(y).all(axis=tuple(range(1, y.ndim))), y, "is not finite", "correct it or drop the row")
    return y


def _reject(wrong: np.ndarray, y: np.ndarray, what: str, remedy: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        label = ", ".join(f"{number:g}" for number in np.atleast_1d(y[row]))
        label = f"({label})" if y.ndim == 2 else label
        raise DataError(f"label {label} {what}", where=f"row {row}", remedy=remedy)
