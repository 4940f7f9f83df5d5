"""Metrics of predicted classes, and of scores that separate out-of-distribution rows from familiar ones.

Proper scores: Gneiting, Raftery: "Strictly Proper Scoring Rules, Prediction, and Estimation", Journal of the American
Statistical Association 2007, doi:10.1198/016214506000001437. Brier: "Verification of Forecasts Expressed in Terms of
Probability", Monthly Weather Review 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2. Calibration: Guo, Pleiss,
Sun, Weinberger: "On Calibration of Modern Neural Networks", ICML 2017, arXiv:1706.04599. Balanced accuracy: Brodersen, Ong,
Stephan, Buhmann: "The Balanced Accuracy and Its Posterior Distribution", ICPR 2010, doi:10.1109/ICPR.2010.764. Areas under
curves: Fawcett: "An Introduction to ROC Analysis", Pattern Recognition Letters 2006, doi:10.1016/j.patrec.2005.10.010.
Out-of-distribution rows: Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
Networks", ICLR 2017, arXiv:1610.02136; Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection
in Neural Networks", ICLR 2018, arXiv:1706.02690.

Labels are compared as they are; where probabilities count, `y` is the position of each row's class and `proba`
is (N, K), or (N,) with the probability of the second of two classes. Scores, such as the predictive variance, are higher
further out of distribution: `scores_in` are of rows like the training data, `scores_out` of others.

>>> accuracy(["yes", "no"], ["yes", "yes"])
0.5
>>> brier([0.8, 0.4], [1, 1]), brier([[0.2, 0.8], [0.6, 0.4]], [1, 1])  # (0.2² + 0.6²) / 2
(0.2, 0.2)
>>> ece([0.8, 0.6], [1, 0])  # sure of 0.8 and right, of 0.6 and wrong: (0.2 + 0.6) / 2
0.4
>>> auroc(scores_in=[0.1, 0.2, 0.3], scores_out=[0.25, 0.9]), fpr95(scores_in=[0.1, 0.2, 0.3], scores_out=[0.25, 0.9])
(0.8333, 0.3333)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import ConfigError
from polyfed.metrics.regression import columns, nlpd, numbers, probabilities


def accuracy(label: ArrayLike, y: ArrayLike) -> float:
    """The share of rows whose label is right."""
    return float(np.mean(_hits(label, y)[0]))


def balanced_accuracy(label: ArrayLike, y: ArrayLike) -> float:
    """The accuracy within each class that was observed, averaged over these classes: a rare one counts as much."""
    hits, y = _hits(label, y)
    _, of_row, size = np.unique(y, return_inverse=True, return_counts=True)
    return float(np.mean(np.bincount(of_row, weights=hits) / size))


def class_auroc(proba: ArrayLike, y: ArrayLike) -> float | None:
    """How well the probabilities sort: that of a class, in rows of it against all other rows, averaged over the classes.

    The average is over the classes that were observed, each counting once; None if there is but one (then there is
    nothing to sort). Where all occur, it is scikit-learn's one-vs-rest macro average.

    >>> class_auroc([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]], [0, 0, 1])
    0.5
    """
    proba, y = probabilities(proba, y)
    if proba.ndim == 1:
        proba = np.column_stack([1 - proba, proba])
    found = np.unique(y)
    if len(found) < 2 or not np.isfinite(proba).all():
        return None
    return float(np.mean([auroc(proba[y != k, k], proba[y == k, k]) for k in found]))


def nll(log_density: ArrayLike) -> float:
    """The negative log probability of the observed class of a row, on average."""
    return nlpd(log_density)


def brier(proba: ArrayLike, y: ArrayLike) -> float:
    """The squared distance of the probabilities from the class that was observed, on average.

    With two classes it is (p - y)², from 0 to 1; with more, the sum over the classes, from 0 to 2. scikit-learn
    does the same. Two columns give what one gives, so that a task is not worse for being called multiclass.
    """
    proba, y = probabilities(proba, y)
    if proba.ndim == 1:
        return float(np.mean((proba - y) ** 2))
    distance = ((proba - np.eye(proba.shape[1])[y]) ** 2).sum(axis=1).mean()
    return float(distance / 2 if proba.shape[1] == 2 else distance)


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """Rows by confidence, one entry for each bin; `confidence` and `accuracy` are NaN where `count` is 0."""

    edges: np.ndarray  # one more than there are bins
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def ece(self) -> float:
        """The expected calibration error: |accuracy - confidence| of the bins, each weighted by its rows."""
        filled = self.count > 0
        gap = np.abs(self.accuracy - self.confidence)[filled]
        return float(gap @ self.count[filled] / self.count.sum())


def calibration_bins(proba: ArrayLike, y: ArrayLike, *, n_bins: int = 15) -> CalibrationBins:
    """How often the most probable class is right, against how sure of it the model is.

    The bins are equally wide from 0 to 1. A confidence on an edge belongs to the bin above, and 1 to the last.
    For two classes the confidence is max(p, 1 - p); this is not the variant that bins p itself.
    """
    if not isinstance(n_bins, int) or n_bins < 1:
        raise ConfigError(f"n_bins={n_bins!r} is not a whole number from 1 up", remedy="choose for example 15")
    proba, y = probabilities(proba, y)
    if proba.ndim == 1:
        top, sure = proba >= 0.5, np.maximum(proba, 1 - proba)
    else:
        top, sure = proba.argmax(axis=1), proba.max(axis=1)
    edges = np.linspace(0, 1, n_bins + 1)
    bin_of = np.clip(np.searchsorted(edges, sure, side="right") - 1, 0, n_bins - 1)
    count = np.bincount(bin_of, minlength=n_bins)
    confidence, right = (np.bincount(bin_of, weights=each, minlength=n_bins) for each in (sure, top == y))
    size = np.where(count > 0, count, np.nan)
    return CalibrationBins(edges, count, confidence / size, right / size)


def ece(proba: ArrayLike, y: ArrayLike, *, n_bins: int = 15) -> float:
    """The expected calibration error: |accuracy - confidence| of the bins, each weighted by its rows."""
    return calibration_bins(proba, y, n_bins=n_bins).ece


def auroc(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """The probability that an out-of-distribution row scores higher than a familiar one; ties count half."""
    inside, outside = _both(scores_in, scores_out)
    from scipy import stats  # it takes a second to import, and few need it

    ranks = stats.rankdata(np.concatenate([outside, inside]))[: len(outside)]
    above = ranks.sum() - len(outside) * (len(outside) + 1) / 2  # Mann and Whitney's U
    return float(above / (len(inside) * len(outside)))


def fpr95(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """The share of familiar rows that raise an alarm when the threshold catches 95% of the others."""
    inside, outside = _both(scores_in, scores_out)
    caught = -(-95 * len(outside) // 100)  # rounded up, in whole numbers
    threshold = np.sort(outside)[len(outside) - caught]
    return float(np.mean(inside >= threshold))


def _both(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    (inside,), (outside,) = numbers(scores_in=scores_in), numbers(scores_out=scores_out)
    return inside, outside


def _hits(label: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    label, y = columns(label=label, y=y)
    if "O" in (label.dtype.kind, y.dtype.kind):  # numbers among words, which numpy cannot sort
        position = {value: i for i, value in enumerate({*label.tolist(), *y.tolist()})}
        label, y = (np.array([position[value] for value in column.tolist()]) for column in (label, y))
    return np.asarray(label == y), y
