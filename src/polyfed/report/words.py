"""How metrics are written for people, and how many digits are worth showing.

>>> decimals([0.1234, 0.4]), decimals([12.3, 8.0]), decimals([4120.0])
(3, 2, 0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from polyfed.kinds import KINDS


def name_of(metric: str) -> str:
    """A metric as it is written for people.

    >>> name_of("rmse"), name_of("balanced_accuracy")
    ('RMSE', 'balanced accuracy')
    """
    if metric == "r2":
        return "R²"
    return metric.upper() if metric in ("mse", "rmse", "nlpd", "nll", "ece", "auroc") else metric.replace("_", " ")


def guess_of(kind: str) -> str:
    """What a model of a task of this kind is measured against.

    >>> guess_of("binary"), guess_of("count")
    ('majority class', 'mean')
    """
    return "majority class" if KINDS[kind].has_classes else "mean"


def decimals(values: Iterable[float]) -> int:
    """Digits after the point that show about three that matter of the largest value, the same for a whole column."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest >= 1000:
        return 0
    if largest == 0 or largest >= 0.1:
        return 3 - max(0, len(str(int(largest))) - 1)
    return 2 - math.floor(math.log10(largest))
