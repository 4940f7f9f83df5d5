"""How large the numbers of a column are (its moments, those of several clients pooled, and the scaler made of them), and inputs
that say more in another scale: few values far above the rest would else decide what is near what.

`log` is the logarithm of one more than the size, with the sign kept: it exists for any number, and means the same at every
client, so that nobody has to agree on it. `rank` is the rank among the values of all clients, agreed in round 0:
a client sorts its training values and sends the means and sizes of groups of neighbours (microaggregation), never a value or
the end of a range. The server adds them up to the distribution function of the federation, a curve through at most MOST_KNOTS
points, by which every client turns its own values into ranks between 0 and 1.

>>> changed(np.array([0.0, np.e - 1, -np.e + 1]), "log")
array([ 0.,  1., -1.])
>>> sketch = Sketch.of(np.array([1.0, 2.0, 3.0, 100.0, 200.0, 300.0, np.nan]), least=3)
>>> sketch.mean, sketch.count
(array([  2., 200.]), array([3, 3]))
>>> Ranks.pool([sketch, sketch]).of(np.array([2.0, 101.0, 1e9]))
array([0.25, 0.5 , 0.75])
>>> a, b = Moments.of([[1.0], [3.0]]), Moments.of([[8.0]])
>>> pooled = Moments.pool([a, b])
>>> pooled.count, pooled.mean, pooled.std**2  # 1, 3 and 8: mean 4, squared deviations 9 + 1 + 16 over 3
(array([3]), array([4.]), array([8.667]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from polyfed.data.features.matrix import Described
from polyfed.data.features.raw import RawFeatures
from polyfed.errors import ConfigError, DataError, nearest

REACH = 10.0  # times the usual: clients of very different sizes are honest
FEWEST = 3  # clients with values in a column; among fewer there is no majority
TRANSFORMS = ("log", "rank")
AUTO = "auto"  # what `polyfed run` and `compare` put one of them in place of
ALL = "*"  # in place of a name: all columns that are skewed and not named
LEAST_GROUP = 5  # values of which a mean is sent, whatever a client's limits: fewer reveal single rows
USUAL_GROUPS = 64  # of one client; ranks are then off by less than a hundredth
MOST_GROUPS = 2 * USUAL_GROUPS + 1  # a value that many rows have is a group of its own, and so is what lies between two
MOST_KNOTS = 64  # of the agreed curve


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
    liar moves neither beyond what the others said; of two, it is unknown which one lies. Clients that are within these
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


def checked_transform(given: Mapping[str, str] | None, columns: Sequence[str], where: str) -> dict[str, str]:
    """column → transform, as a user gives it; each must be an input."""
    for name, how in (given or {}).items():
        if how == AUTO:
            what = f"transform {AUTO!r} is not for data of several machines or from Python"
            remedy = "let polyfed run choose it where there are rows to choose by, and name what it chose"
            raise ConfigError(what, where=where, remedy=remedy)
        if how not in TRANSFORMS:
            what = f"transform {how!r} of column {name!r} is not known"
            raise ConfigError(what, where=where, remedy=nearest(how, TRANSFORMS))
        if name not in columns:
            remedy = f"{nearest(name, list(columns))}; the logarithm of a target is derived (log_y = log(y))"
            raise ConfigError(f"column {name!r} is transformed, but is no input", where=where, remedy=remedy)
    return dict(given or {})


def to_transform(raw: RawFeatures, transform: Mapping[str, str], *, where: str) -> RawFeatures:
    """The same features, some of which are to be transformed once it is agreed on."""
    for name in transform:
        if name not in raw.number_names:
            what = f"column {name!r} is transformed, but holds no numbers"
            raise DataError(what, where=where, remedy="leave it as it is")
    return replace(raw, transform=transform) if transform else raw


def changed(numbers: np.ndarray, how: str, ranks: Ranks | None = None) -> np.ndarray:
    """A column transformed; one that is not, or whose ranks are not known yet, as it is."""
    if how == "log":
        return np.sign(numbers) * np.log1p(np.abs(numbers))
    return numbers if ranks is None else ranks.of(numbers)


@dataclass(frozen=True, eq=False)
class Sketch(Described):
    """What a client sends of one column: the mean of each group of neighbouring values, rising, and how many they are."""

    mean: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, least: int) -> Sketch | None:
        """The groups of these values, each of at least that number; None if there are too few for one."""
        values, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        n = int(counts.sum())
        if n < least:
            return None
        enough = max(least, -(-n // USUAL_GROUPS))
        groups: list[list[int]] = [[]]  # positions of different values
        size = 0
        for i, count in enumerate(counts.tolist()):
            if size >= enough or (count >= enough and size >= least):
                groups.append([])
                size = 0
            groups[-1].append(i)
            size += count
        if size < least:  # the last ones are too few; there is a group before, for all together are enough
            groups[-2:] = [groups[-2] + groups[-1]]
        sizes = np.array([counts[group].sum() for group in groups])
        means = [_mean(values[group], counts[group]) for group in groups]
        return cls(np.array(means), sizes)

    @classmethod
    def from_dict(cls, described: Mapping[str, Sequence[float]]) -> Sketch:
        return cls(np.array(described["mean"], dtype=np.float64), np.array(described["count"], dtype=np.int64))


@dataclass(frozen=True)
class Ranks:
    """The distribution function of a column as all clients use it: values, rising, and the rank of each."""

    values: tuple[float, ...]
    ranks: tuple[float, ...]

    @classmethod
    def pool(cls, sketches: Sequence[Sketch]) -> Ranks:
        """Of all clients' groups together; none counts for more than REACH times as many rows as is usual."""
        means, weights = _together(sketches)
        values, of_value = np.unique(means, return_inverse=True)
        weight = np.bincount(of_value.reshape(-1), weights)
        ranks = (np.cumsum(weight) - weight / 2) / weight.sum()
        if len(values) > MOST_KNOTS:
            # Points of the curve itself, those nearest to evenly spaced ranks: where many rows have one value it stays exact.
            wanted = np.linspace(ranks[0], ranks[-1], MOST_KNOTS)
            above = np.searchsorted(ranks, wanted).clip(1, len(ranks) - 1)
            kept = np.unique(np.where(wanted - ranks[above - 1] <= ranks[above] - wanted, above - 1, above))
            values, ranks = values[kept], ranks[kept]
        return cls(tuple(values.tolist()), tuple(ranks.tolist()))

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The rank of each number, beyond all knots that of the last; gaps stay."""
        # The difference of two numbers that are nearly the largest is none; of others nothing may be lost.
        unit = 4.0 if max(abs(self.values[0]), abs(self.values[-1])) > 1e300 else 1.0
        ranks = np.interp(numbers / unit, np.array(self.values) / unit, self.ranks)
        return np.where(np.isnan(numbers), np.nan, ranks)

    def undone(self, ranks: np.ndarray) -> np.ndarray:
        return np.interp(ranks, self.ranks, self.values)

    def moments(self, sketches: Sequence[Sketch]) -> tuple[float, float]:
        """Mean and standard deviation of the ranks of these clients' rows."""
        means, weights = _together(sketches)
        ranks, weights = self.of(means), weights / weights.sum()
        mean = float(weights @ ranks)
        return mean, float(np.sqrt(weights @ (ranks - mean) ** 2))


def _together(sketches: Sequence[Sketch]) -> tuple[np.ndarray, np.ndarray]:
    """All clients' groups, and for how many rows each counts."""
    totals = np.array([sketch.count.sum() for sketch in sketches], dtype=np.float64)
    usual = np.sort(totals)[(len(totals) - 1) // 2] if len(totals) >= FEWEST else np.inf
    shares = np.minimum(totals, REACH * usual) / totals
    weights = [share * sketch.count for share, sketch in zip(shares, sketches, strict=True)]
    return np.concatenate([sketch.mean for sketch in sketches]), np.concatenate(weights)


def _mean(values: np.ndarray, counts: np.ndarray) -> float:
    unit = max(np.abs(values).max(), np.finfo(np.float64).tiny)  # the sum of large numbers may be none
    # Between the values, whatever rounding does: groups are in order.
    return float(np.clip((values / unit) @ counts / counts.sum() * unit, values.min(), values.max()))
