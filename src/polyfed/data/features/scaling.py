"""How large the numbers of a column are: its moments, those of several clients pooled, and the scaler made of them.

>>> a, b = Moments.of([[1.0], [3.0]]), Moments.of([[8.0]])
>>> pooled = Moments.pool([a, b])
>>> pooled.count, pooled.mean, pooled.std**2  # 1, 3 and 8: mean 4, squared deviations 9 + 1 + 16 over 3
(array([3]), array([4.]), array([8.667]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polyfed.data.features.matrix import Described

REACH = 10.0  # times the usual: clients of very different sizes are honest
FEWEST = 3  # clients with values in a column; among fewer there is no majority


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    """Standardises columns: `(values - mean) / scale`, with what was learned from the training rows.

    >>> FeatureScaler.learn([[1.0, 5.0], [3.0, 5.0]]).apply([[2.0, 6.0]])
    array([[0., 1.]])
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def learn(cls, values: ArrayLike) -> FeatureScaler:
        """Mean and population standard deviation of each column; a constant column keeps scale 1."""
        return Moments.of(values).scaler()

    @classmethod
    def identity(cls, d: int) -> FeatureScaler:
        """The scaler of `d` columns that changes nothing."""
        return cls(np.zeros(d), np.ones(d))

    def apply(self, values: ArrayLike) -> np.ndarray:
        """The columns in units of the training rows' std."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = values - self.mean
            scaled /= self.scale  # in place, as below: fresh memory costs more than the arithmetic
            if not np.isfinite(scaled).all():  # the difference alone can overflow where the quotient does not
                scaled = np.where(np.isfinite(scaled), scaled, values / self.scale - self.mean / self.scale)
        # Beyond every length-scale already, and kernels can still square it without meeting infinity.
        return np.clip(scaled, -1e100, 1e100, out=scaled)


@dataclass(frozen=True, eq=False)
class Moments(Described):
    """Count, mean and population standard deviation of the numbers in each column, gaps (NaN) left out.

    This is what counts, sums and sums of squares say, no more and no less, in the form that survives arithmetic: sums
    of squares cancel when the mean is large (1e8 ± 1) and overflow when the numbers are (1e200).
    """

    count: np.ndarray
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, values: ArrayLike) -> Moments:
        """The moments of each column; a column without numbers has count, mean and std 0."""
        values = np.asarray(values, dtype=np.float64)
        n, d = values.shape
        if n == 0:
            return cls(np.zeros(d, dtype=np.int64), np.zeros(d), np.zeros(d))
        gaps = np.isnan(values)
        count = np.full(d, n)
        if has_gaps := gaps.any():
            count = n - gaps.sum(axis=0)
            values = np.where(gaps, 0.0, values)
        # Squares of 1e200 overflow and of 1e-200 vanish: work relative to the largest entry of each column.
        unit = _unit(np.abs(values).max(axis=0))
        relative = values / unit
        n_there = np.maximum(count, 1)
        mean = relative.sum(axis=0) / n_there
        relative -= mean
        if has_gaps:
            relative[gaps] = 0.0
        return cls(count, mean * unit, np.sqrt((relative**2).sum(axis=0) / n_there) * unit)

    @classmethod
    def pool(cls, parts: Sequence[Moments]) -> Moments:
        """The moments of all clients' rows together (Chan, Golub and LeVeque), from the moments of each client."""
        count = np.stack([part.count for part in parts])
        mean = np.stack([part.mean for part in parts])
        std = np.stack([part.std for part in parts])
        unit = _unit(np.maximum(np.abs(mean), std).max(axis=0))
        mean, std = mean / unit, std / unit
        total = count.sum(axis=0)
        weight = count / np.maximum(total, 1)
        centre = (weight * mean).sum(axis=0)
        variance = (weight * (std**2 + (mean - centre) ** 2)).sum(axis=0)
        return cls(total, centre * unit, np.sqrt(variance) * unit)

    def of_at_least(self, n: int) -> Moments:
        """The same, with columns of fewer than n values as if they were empty."""
        reported = self.count >= n
        return Moments(*(np.where(reported, each, 0) for each in (self.count, self.mean, self.std)))

    def scaler(self) -> FeatureScaler:
        """What standardises rows with these moments; a constant column keeps scale 1."""
        # Rounding makes even a constant column vary by about 1e-16 of its size; do not blow that up to 1.
        constant = self.std <= 1e-12 * np.maximum(np.abs(self.mean), np.finfo(np.float64).tiny)
        return FeatureScaler(self.mean, np.where(constant, 1.0, self.std))

    @classmethod
    def from_dict(cls, described: Mapping[str, Sequence[float]]) -> Moments:
        mean, std = (np.array(described[key], dtype=np.float64) for key in ("mean", "std"))
        return cls(np.array(described["count"], dtype=np.int64), mean, std)


def pool_robustly(parts: Sequence[Moments]) -> Moments:
    """Units that no single client can choose: moments of all clients' rows, pooled after the odd ones were drawn to the usual.

    For each column, a client counts for at most REACH times the usual number of rows, and reaches at most REACH times as
    far from the middle as is usual. `usual` and `middle` are medians over the clients, so with three or more of them one
    liar moves neither beyond what the others said; of two, nobody can tell which one lies. Clients that are within these
    bounds are pooled exactly, to the last bit, as if their rows lay together.

    >>> def says(mean, std):
    ...     return Moments(np.array([20]), np.array([mean]), np.array([std]))
    >>> honest = [says(60.0, 10.0), says(70.0, 12.0), says(65.0, 9.0)]
    >>> pool_robustly([*honest, says(1e9, 1e9)]).scaler().scale < 100
    array([ True])
    """
    if len(parts) < FEWEST:
        return Moments.pool(parts)
    count, mean, std = (np.stack([getattr(part, key) for part in parts]) for key in ("count", "mean", "std"))
    there = count > 0
    judged = there.sum(axis=0) >= FEWEST
    most = np.where(judged, np.floor(REACH * _lower_median(count, there)), np.inf)
    middle = _lower_median(mean, there)
    # A quarter of each, so that differences and lengths of finite numbers are finite.
    away = mean / 4 - middle / 4
    length = np.hypot(std / 4, away)
    usual = _lower_median(length, there & (length > 0))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        out = judged & there & (length / REACH > usual) & (usual > 0)
        shrink = np.where(out, REACH * (usual / np.where(length > 0, length, 1.0)), 1.0)
        drawn = middle + 4 * (shrink * away)
    largest = np.finfo(np.float64).max
    mean = np.where(out, np.clip(drawn, -largest, largest), mean)
    std = np.where(out, shrink * std, std)
    count = np.minimum(count, most).astype(np.int64)
    return Moments.pool([Moments(*row) for row in zip(count, mean, std, strict=True)])


def _lower_median(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of each column the median of the chosen entries, of two in the middle the lower one; 0 where none is chosen."""
    ordered = np.sort(np.where(chosen, values, np.inf), axis=0)
    at = np.maximum(chosen.sum(axis=0) - 1, 0) // 2
    found = np.take_along_axis(ordered, at[None, :], axis=0)[0]
    return np.where(np.isfinite(found), found, 0.0)


def _unit(largest: np.ndarray) -> np.ndarray:
    """A power of two near each number: to divide by it rounds nothing."""
    return np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)
