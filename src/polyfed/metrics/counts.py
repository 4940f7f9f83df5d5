"""Deviances: how far predicted rates are from what was counted, on the scale of the log-likelihood.

McCullagh, Nelder: "Generalized Linear Models", 2nd edition, Chapman and Hall 1989, doi:10.1007/978-1-4899-3242-6.

A deviance is twice the log-likelihood that a perfect rate would gain, so 0 is perfect.

>>> poisson_deviance(mean=[2.0, 3.0], y=[2, 3])
0.0
>>> binomial_deviance(rate=[0.5], successes=[4], trials=[4])  # 8 log 2
5.5452
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.errors import DataError
from polyfed.metrics.checks import numbers

_LEAST = 1e-300  # a rate of 0 would be infinitely wrong about a single event


def poisson_deviance(mean: Any, y: Any) -> float:
    """The mean Poisson deviance of counts, given their predicted means."""
    from scipy.special import xlogy  # here, because a report that reads scores does without scipy

    mean, y = numbers(mean=mean, y=y)
    _reject(y < 0, y, "y", "give counts from 0 up")
    _reject(mean < 0, mean, "mean", "give the expected counts, which are positive")
    mean = np.maximum(mean, _LEAST)
    return float(2 * np.mean(xlogy(y, y) - xlogy(y, mean) - y + mean))


def binomial_deviance(rate: Any, successes: Any, trials: Any) -> float:
    """The mean binomial deviance of the successes in so many trials, given the predicted success rates."""
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
