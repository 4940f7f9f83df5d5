"""Metrics of predicted numbers.

Densities and intervals as scores: Gneiting, Raftery: "Strictly Proper Scoring Rules, Prediction, and Estimation", Journal
of the American Statistical Association 2007, doi:10.1198/016214506000001437.

>>> rmse(mean=[1.0, 2.0], y=[1.0, 5.0])
2.1213
>>> coverage(lower=[0, 0], upper=[2, 2], y=[2, 3])
0.5
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.metrics.checks import numbers


def mse(mean: Any, y: Any) -> float:
    """The mean squared error."""
    mean, y = numbers(mean=mean, y=y)
    return float(np.mean((mean - y) ** 2))


def rmse(mean: Any, y: Any) -> float:
    """The root of the mean squared error, in the units of y."""
    return float(np.sqrt(mse(mean, y)))


def mae(mean: Any, y: Any) -> float:
    """The mean absolute error."""
    mean, y = numbers(mean=mean, y=y)
    return float(np.mean(np.abs(mean - y)))


def r2(mean: Any, y: Any) -> float | None:
    """The share of the variance of y that is explained; below 0, y's own mean would have done better.

    None where y has no variance. It judges by the mean of the rows that are predicted, which nobody knew beforehand:
    skill (`polyfed.metrics.guessing`) by that of the training rows.
    """
    mean, y = numbers(mean=mean, y=y)
    variance = float(np.var(y))
    return float(1 - np.mean((mean - y) ** 2) / variance) if variance > 0 else None


def nlpd(log_density: Any) -> float:
    """The negative log predictive density of a row, on average; for classes it is called nll."""
    (log_density,) = numbers(log_density=log_density)
    return float(-np.mean(log_density))


def coverage(lower: Any, upper: Any, y: Any) -> float:
    """The share of rows that lie within their interval, its ends included; the level of the interval is right."""
    lower, upper, y = numbers(lower=lower, upper=upper, y=y)
    return float(np.mean((lower <= y) & (y <= upper)))


def width(lower: Any, upper: Any) -> float:
    """The mean width of the intervals: of two methods with the right coverage, the narrower is better."""
    lower, upper = numbers(lower=lower, upper=upper)
    return float(np.mean(upper - lower))
