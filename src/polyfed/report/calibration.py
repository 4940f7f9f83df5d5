"""How often the most probable class is right, against how sure of it the model is.

>>> bins = calibration_bins(np.array([[0.2, 0.8], [0.4, 0.6]]), np.array([1, 0]))
>>> bins.ece  # sure of 0.8 and right, of 0.6 and wrong: (0.2 + 0.6) / 2
0.4
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

N_BINS = 15


@dataclass(frozen=True, eq=False)
class Bins:
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


def calibration_bins(proba: np.ndarray, y: np.ndarray) -> Bins:
    """Equally wide bins of the top class's probability; an edge belongs to the bin above, and 1 to the last.

    `proba` has a column for each class, `y` is the position of each row's class. The same convention as in the
    metrics of an evaluation, so that the two agree for a single client.
    """
    sure = proba.max(axis=1)
    # Of two equally probable classes the second is the answer, as it is in predictions.
    top = (proba[:, 1] >= 0.5).astype(int) if proba.shape[1] == 2 else proba.argmax(axis=1)
    edges = np.linspace(0, 1, N_BINS + 1)
    bin_of = np.clip(np.searchsorted(edges, sure, side="right") - 1, 0, N_BINS - 1)
    count = np.bincount(bin_of, minlength=N_BINS)
    confidence, right = (np.bincount(bin_of, weights=each, minlength=N_BINS) for each in (sure, top == y))
    size = np.where(count > 0, count, np.nan)
    return Bins(edges, count, confidence / size, right / size)
