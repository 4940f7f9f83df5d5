"""Which way a metric is better.

>>> is_better("accuracy", 0.9, 0.8), is_better("rmse", 0.9, 0.8), is_better("coverage", 0.96, 0.99)
(True, False, True)
"""

from __future__ import annotations

BASELINE, SKILL = "baseline", "skill"  # the headline metric of a guess, and the skill of a model against it
LEVEL = 0.95  # of the intervals behind coverage and width
SHARES = ("accuracy", "balanced_accuracy", "auroc", "coverage")  # from 0 to 1
_HIGHER = ("accuracy", "balanced_accuracy", "auroc", "r2", SKILL)


def badness(metric: str, value: float) -> float:
    """The same on a scale where less is better; coverage is best at its level, neither low nor high."""
    if metric == "coverage":
        return abs(value - LEVEL)
    return -value if metric in _HIGHER else value


def is_better(metric: str, value: float, other: float) -> bool:
    return badness(metric, value) < badness(metric, other)


def advice(metric: str) -> str:
    """Which way is better, in words.

    >>> advice("coverage")
    'best near 0.95'
    """
    if metric == "coverage":
        return f"best near {LEVEL}"
    return "higher is better" if metric in _HIGHER else "lower is better"
