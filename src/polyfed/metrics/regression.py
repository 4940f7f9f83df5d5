"""Metrics of predicted numbers, and what every metric asks of its arguments: as many of each, at least one, and observed labels
that are there.

Densities and intervals as scores: Gneiting, Raftery: "Strictly Proper Scoring Rules, Prediction, and Estimation", Journal
of the American Statistical Association 2007, doi:10.1198/016214506000001437. Deviances: McCullagh, Nelder: "Generalized
Linear Models", 2nd edition, Chapman and Hall 1989, doi:10.1007/978-1-4899-3242-6; twice the log-likelihood that a perfect
rate would gain, so 0 is perfect.

>>> rmse(mean=[1.0, 2.0], y=[1.0, 5.0])
2.1213
>>> coverage(lower=[0, 0], upper=[2, 2], y=[2, 3])
0.5
>>> poisson_deviance(mean=[2.0, 3.0], y=[2, 3])
0.0
>>> binomial_deviance(rate=[0.5], successes=[4], trials=[4])  # 8 log 2
5.5452
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import DataError

_LEAST = 1e-300  # a rate of 0 would be infinitely wrong about a single event
_OBSERVED = ("y", "successes", "trials")  # by these names the metrics call what is compared with


def mse(mean: ArrayLike, y: ArrayLike) -> float:
    """The mean squared error."""
    mean, y = numbers(mean=mean, y=y)
    return float(np.mean((mean - y) ** 2))


def rmse(mean: ArrayLike, y: ArrayLike) -> float:
    """The root of the mean squared error, in the units of y."""
    return float(np.sqrt(mse(mean, y)))


def mae(mean: ArrayLike, y: ArrayLike) -> float:
    """The mean absolute error."""
    mean, y = numbers(mean=mean, y=y)
    return float(np.mean(np.abs(mean - y)))


def r2(mean: ArrayLike, y: ArrayLike) -> float | None:
    """The share of the variance of y that is explained; below 0, y's own mean would have done better.

    None where y has no variance. It judges by the mean of the rows that are predicted, which nobody knew beforehand:
    skill (`polyfed.metrics.scores`) by that of the training rows.
    """
    mean, y = numbers(mean=mean, y=y)
    variance = float(np.var(y))
    return float(1 - np.mean((mean - y) ** 2) / variance) if variance > 0 else None


def nlpd(log_density: ArrayLike) -> float:
    """The negative log predictive density of a row, on average; for classes it is called nll."""
    (log_density,) = numbers(log_density=log_density)
    return float(-np.mean(log_density))


def coverage(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> float:
    """The share of rows that lie within their interval, its ends included; the level of the interval is right."""
    lower, upper, y = numbers(lower=lower, upper=upper, y=y)
    return float(np.mean((lower <= y) & (y <= upper)))


def width(lower: ArrayLike, upper: ArrayLike) -> float:
    """The mean width of the intervals: of two methods with the right coverage, the narrower is better."""
    lower, upper = numbers(lower=lower, upper=upper)
    return float(np.mean(upper - lower))


def poisson_deviance(mean: ArrayLike, y: ArrayLike) -> float:
    """The mean Poisson deviance of counts, given their predicted means."""
    from scipy.special import xlogy  # here, because a report that reads scores does without scipy

    mean, y = numbers(mean=mean, y=y)
    _reject(y < 0, y, "y", "give counts from 0 up")
    _reject(mean < 0, mean, "mean", "give the expected counts, which are positive")
    mean = np.maximum(mean, _LEAST)
    return float(2 * np.mean(xlogy(y, y) - xlogy(y, mean) - y + mean))


def binomial_deviance(rate: ArrayLike, successes: ArrayLike, trials: ArrayLike) -> float:
    """The mean binomial deviance of the successes in these trials, given the predicted success rates."""
    from scipy.special import xlogy

    rate, successes, trials = numbers(rate=rate, successes=successes, trials=trials)
    _reject((rate < 0) | (rate > 1), rate, "rate", "give a probability")
    _reject((successes < 0) | (successes > trials), successes, "successes", "give from 0 up to the number of trials")
    sides = ((successes, trials * rate), (trials - successes, trials * (1 - rate)))
    gains = (xlogy(k, k) - xlogy(k, np.maximum(expected, _LEAST)) for k, expected in sides)
    return float(2 * np.mean(sum(gains)))


def _reject(wrong: np.ndarray, values: np.ndarray, name: str, remedy: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{name} is {values[row]:g}", where=f"row {row}", remedy=remedy)


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
