"""Inputs that say more in another scale: few values far above the rest would else decide what is near what.

`log` is the logarithm of one more than the size, with the sign kept: it exists for any number, and means the same at every
client, so that nobody has to agree on it. `rank` is the rank among the values of all clients (`ranks`), agreed in round 0.

>>> changed(np.array([0.0, np.e - 1, -np.e + 1]), "log")
array([ 0.,  1., -1.])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyfed.data.features.ranks import Ranks
from polyfed.data.features.raw import RawFeatures
from polyfed.errors import ConfigError, DataError, nearest

TRANSFORMS = ("log", "rank")
AUTO = "auto"  # what `polyfed run` and `compare` put one of them in place of
ALL = "*"  # in place of a name: all columns that are skewed and not named


def checked_transform(given: Any, columns: Sequence[str], where: str) -> dict[str, str]:
    """column → transform, as a user gives it; each must be an input."""
    for name, how in (given or {}).items():
        if how == AUTO:
            raise ConfigError(
                f"transform {AUTO!r} is not for data of several machines or from Python",
                where=where,
                remedy="let polyfed run choose it where there are rows to choose by, and name what it chose",
            )
        if how not in TRANSFORMS:
            raise ConfigError(
                f"transform {how!r} of column {name!r} is not known", where=where, remedy=nearest(how, TRANSFORMS)
            )
        if name not in columns:
            remedy = f"{nearest(name, list(columns))}; the logarithm of a target is derived (log_y = log(y))"
            raise ConfigError(f"column {name!r} is transformed, but is no input", where=where, remedy=remedy)
    return dict(given or {})


def to_transform(raw: RawFeatures, transform: Mapping[str, str], *, where: str) -> RawFeatures:
    """The same features, some of which are to be transformed once it is agreed on."""
    for name in transform:
        if name not in raw.number_names:
            raise DataError(
                f"column {name!r} is transformed, but holds no numbers", where=where, remedy="leave it as it is"
            )
    return replace(raw, transform=transform) if transform else raw


def changed(numbers: np.ndarray, how: str, ranks: Ranks | None = None) -> np.ndarray:
    """A column transformed; one that is not, or whose ranks are not known yet, as it is."""
    if how == "log":
        return np.sign(numbers) * np.log1p(np.abs(numbers))
    return numbers if ranks is None else ranks.of(numbers)


def undone(numbers: np.ndarray, how: str, ranks: Ranks | None = None) -> np.ndarray:
    """`changed` undone, as far as it can be."""
    if how == "log":
        return np.sign(numbers) * np.expm1(np.abs(numbers))
    return numbers if ranks is None else ranks.undone(numbers)
