"""Which way a metric is better, which one is shown first, and how many digits are worth showing.

>>> is_better("accuracy", 0.9, 0.8), is_better("rmse", 0.9, 0.8), is_better("coverage", 0.96, 0.99)
(True, False, True)
>>> decimals([0.1234, 0.4]), decimals([12.3, 8.0]), decimals([4120.0])
(3, 2, 0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

HIGHER_IS_BETTER = ("accuracy", "balanced_accuracy", "auroc", "r2", "skill")
SHARES = ("accuracy", "balanced_accuracy", "auroc", "coverage")  # from 0 to 1
BASELINE = "baseline"  # the headline metric of a guess that costs nothing: a line to be above, no metric of a method
LEVEL = 0.95  # of the intervals in results.json, and so of coverage
CLASS_KINDS = ("binary", "multiclass")


def headline(kind: str) -> str:
    """The metric that is shown first."""
    return "accuracy" if kind in CLASS_KINDS else "rmse"


def badness(metric: str, value: float) -> float:
    """The same on a scale where less is better; coverage is best at its level, neither low nor high."""
    if metric == "coverage":
        return abs(value - LEVEL)
    return -value if metric in HIGHER_IS_BETTER else value


def is_better(metric: str, value: float, other: float) -> bool:
    return badness(metric, value) < badness(metric, other)


def advice(metric: str) -> str:
    """Which way is better, in words.

    >>> advice("coverage")
    'best near 0.95'
    """
    if metric == "coverage":
        return f"best near {LEVEL}"
    return "higher is better" if metric in HIGHER_IS_BETTER else "lower is better"


def name_of(metric: str) -> str:
    """A metric as it is written for people.

    >>> name_of("rmse"), name_of("balanced_accuracy")
    ('RMSE', 'balanced accuracy')
    """
    if metric == "r2":
        return "R²"
    return metric.upper() if metric in ("mse", "rmse", "nlpd", "nll", "ece", "auroc") else metric.replace("_", " ")


def guess_of(kind: str) -> str:
    """What a model is measured against.

    >>> guess_of("binary"), guess_of("count")
    ('majority class', 'mean')
    """
    return "majority class" if kind in CLASS_KINDS else "mean"


def decimals(values: Iterable[float]) -> int:
    """Digits after the point that show about three that matter of the largest value, the same for a whole column."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest >= 1000:
        return 0
    if largest == 0 or largest >= 0.1:
        return 3 - max(0, len(str(int(largest))) - 1)
    return 2 - math.floor(math.log10(largest))
