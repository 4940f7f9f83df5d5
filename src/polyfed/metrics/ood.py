"""Does a score, such as the predictive variance, tell out-of-distribution rows from familiar ones?

Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks", ICLR 2017,
arXiv:1610.02136; Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks",
ICLR 2018, arXiv:1706.02690.

A higher score means further out of distribution. `scores_in` are of rows like the training data, `scores_out` of others.

>>> auroc(scores_in=[0.1, 0.2, 0.3], scores_out=[0.25, 0.9])
0.8333
>>> fpr95(scores_in=[0.1, 0.2, 0.3], scores_out=[0.25, 0.9])
0.3333
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyfed.metrics.checks import numbers


def auroc(scores_in: Any, scores_out: Any) -> float:
    """The probability that an out-of-distribution row scores higher than a familiar one; ties count half."""
    inside, outside = _both(scores_in, scores_out)
    from scipy import stats  # it takes a second to import, and few need it

    ranks = stats.rankdata(np.concatenate([outside, inside]))[: len(outside)]
    above = ranks.sum() - len(outside) * (len(outside) + 1) / 2  # Mann and Whitney's U
    return float(above / (len(inside) * len(outside)))


def fpr95(scores_in: Any, scores_out: Any) -> float:
    """The share of familiar rows that raise an alarm when the threshold catches 95% of the others."""
    inside, outside = _both(scores_in, scores_out)
    caught = -(-95 * len(outside) // 100)  # rounded up, in whole numbers
    threshold = np.sort(outside)[len(outside) - caught]
    return float(np.mean(inside >= threshold))


def _both(scores_in: Any, scores_out: Any) -> tuple[np.ndarray, np.ndarray]:
    (inside,), (outside,) = numbers(scores_in=scores_in), numbers(scores_out=scores_out)
    return inside, outside
