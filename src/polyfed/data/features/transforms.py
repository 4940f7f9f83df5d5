"""Inputs that say more in another scale: few values far above the rest would else decide what is near what.

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyfed.data.features.matrix import Described
from polyfed.data.features.raw import RawFeatures
from polyfed.data.features.scaling import FEWEST, REACH
from polyfed.errors import ConfigError, DataError, nearest

TRANSFORMS = ("log", "rank")
AUTO = "auto"  # what `polyfed run` and `compare` put one of them in place of
ALL = "*"  # in place of a name: all columns that are skewed and not named
LEAST_GROUP = 5  # values of which a mean is sent, whatever a client's limits: fewer tell of single rows
USUAL_GROUPS = 64  # of one client; ranks are then off by less than a hundredth
MOST_GROUPS = 2 * USUAL_GROUPS + 1  # a value that many rows have is a group of its own, and so is what lies between two
MOST_KNOTS = 64  # of the agreed curve


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
