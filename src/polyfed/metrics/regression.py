"""Metrics of predicted numbers.

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

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import DataError
from polyfed.metrics.checks import numbers

_LEAST = 1e-300  # a rate of 0 would be infinitely wrong about a single event


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
