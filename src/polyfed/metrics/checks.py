"""What every metric asks of its arguments: as many of each, at least one, and observed labels that are there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import DataError

_OBSERVED = ("y", "successes", "trials")  # by these names the metrics call what is compared with


def columns(**named: ArrayLike) -> tuple[np.ndarray, ...]:
    """The arguments as arrays that are equally long and not empty.

    >>> columns(mean=[1.0, 2.0], y=[1.0])
    Traceback (most recent call last):
    polyfed.errors.DataError: there are 2 of mean but 1 of y; give one of each for every row.
    """
    arrays = tuple(np.asarray(value) for value in named.values())
    for name, array in zip(named, arrays, strict=True):
        if array.ndim != 1:
            raise DataError(f"{name} has shape {array.shape}", remedy="give one column")
    same_length(named, arrays)
    return arrays


def numbers(**named: ArrayLike) -> tuple[np.ndarray, ...]:
    """As `columns`, in float64; what was observed must be finite, what was predicted need not be (a diverged model)."""
    arrays = []
    for name, given in zip(named, columns(**named), strict=True):
        try:
            arrays.append(array := given.astype(np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"{name} does not hold numbers alone", remedy="give a column of numbers") from error
        if name in _OBSERVED and not np.isfinite(array).all():
            row = int(np.isfinite(array).argmin())
            raise DataError(f"{name} is {array[row]}", where=f"row {row}", remedy="leave out the rows without a label")
    return tuple(arrays)


def probabilities(proba: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """`proba` (N,) of the second of two classes, or (N, K) of all; `y` the position of the class of each row."""
    proba, y = np.asarray(proba, dtype=np.float64), np.asarray(y)
    if proba.ndim not in (1, 2) or y.ndim != 1 or (proba.ndim == 2 and proba.shape[1] < 2):
        remedy = "give a column for each class, or one column for the second of two, and one label for each row"
        raise DataError(f"proba has shape {proba.shape} and y {y.shape}", remedy=remedy)
    same_length(("proba", "y"), (proba, y))
    n_classes = 2 if proba.ndim == 1 else proba.shape[1]
    wrong = (y != np.floor(y)) | (y < 0) | (y >= n_classes) if y.dtype.kind in "biuf" else np.ones(len(y), dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        what = f"label {y[row].item()!r} is not the position of a class"
        raise DataError(what, where=f"row {row}", remedy=f"with {n_classes} classes it is from 0 to {n_classes - 1}")
    return proba, y.astype(np.intp)


def same_length(names: Iterable[str], arrays: Iterable[np.ndarray]) -> None:
    first, *others = zip(names, arrays, strict=True)
    for name, array in others:
        if len(array) != len(first[1]):
            remedy = "give one of each for every row"
            raise DataError(f"there are {len(first[1])} of {first[0]} but {len(array)} of {name}", remedy=remedy)
    if len(first[1]) == 0:
        raise DataError(f"{first[0]} is empty", remedy="give at least one row")
