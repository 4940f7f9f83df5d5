"""Whether a difference is more than luck: the tests of Demšar 2006, "Statistical comparisons of classifiers over multiple
data sets", JMLR 7, with plain arrays (a report needs no scipy).

>>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])      # all six in one direction: 2 / 2⁶
0.03125
>>> critical_difference(n_methods=5, n_blocks=30)
1.1137
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ALPHA = 0.05
EXACT = 25  # pairs up to which every assignment of signs is counted
# Quantiles of the studentised range at 0.95 with endless degrees of freedom over √2, from two methods to twenty.
_STUDENTISED = (
    1.960, 2.344, 2.569, 2.728, 2.850, 2.948, 3.031, 3.102, 3.164, 3.219,
    3.268, 3.313, 3.354, 3.391, 3.426, 3.458, 3.489, 3.517, 3.544,
)  # fmt: skip


def wilcoxon(differences: Sequence[float]) -> float:
    """The two-sided p of the signed-rank test that paired differences are centred at 0; those that are 0 say nothing."""
    d = np.asarray([value for value in differences if value != 0], dtype=np.float64)
    if len(d) == 0:
        return 1.0
    rank = ranks(np.abs(d))
    positive, total = float(rank[d > 0].sum()), float(rank.sum())
    least = min(positive, total - positive)
    if len(d) <= EXACT:
        # Of all assignments of signs, the share whose ranks of one sign sum to no more than the least sum.
        doubled = np.rint(2 * rank).astype(int)  # ranks that are shared are halves
        ways = np.zeros(int(doubled.sum()) + 1)
        ways[0] = 1.0
        for one in doubled.tolist():
            ways[one:] += ways[:-one].copy()
        return min(1.0, 2 * float(ways[: round(2 * least) + 1].sum() / 2.0 ** len(rank)))
    deviation = math.sqrt(float((rank**2).sum()) / 4)  # with ties it is less than without
    return math.erfc((total / 2 - least) / deviation / math.sqrt(2))


def holm(p: Sequence[float]) -> list[float]:
    """The same p, corrected for being many (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate([(len(order) - i) * p[at] for i, at in enumerate(order)])
    found = np.empty(len(order))
    found[order] = np.minimum(1.0, corrected)
    return found.tolist()


def critical_difference(n_methods: int, n_blocks: int) -> float | None:
    """How far apart two mean ranks must be to differ (Nemenyi's test at 0.05); None if that is not known."""
    if not 2 <= n_methods <= len(_STUDENTISED) + 1 or n_blocks < 2:
        return None
    return _STUDENTISED[n_methods - 2] * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1 for the least; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, of_value, size = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(size) - (size - 1) / 2)[of_value]
