"""Inputs whose logarithm says more than they do: few values far above the rest would else decide what is near what.

The logarithm is that of one more than the size, with the sign kept: it exists for any number, and means the same at every
client, so that nobody has to agree on it. A column that is transformed has a name of its own, by which new rows are read alike.

>>> from polyfed.data.raw_features import read_features
>>> import pandas as pd
>>> raw = read_features(pd.DataFrame({"income": [0.0, np.e - 1, -np.e + 1]}), where="X")
>>> made = transformed(raw, {"income": "log"}, where="X")
>>> made.names, made.numbers.T
(('income, log',), array([[ 0.,  1., -1.]]))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyfed.data.raw_features import RawFeatures
from polyfed.errors import ConfigError, DataError, nearest

TRANSFORMS = ("log",)


def transformed_name(column: str, how: str = "log") -> str:
    """What a transformed column is called."""
    return f"{column}, {how}"


def checked_transform(given: Any, columns: Sequence[str], where: str) -> dict[str, str]:
    """column → transform, as a user gives it; each must be an input."""
    for name, how in (given or {}).items():
        if how not in TRANSFORMS:
            raise ConfigError(
                f"transform {how!r} of column {name!r} is not known", where=where, remedy=nearest(how, TRANSFORMS)
            )
        if name not in columns:
            raise ConfigError(
                f"column {name!r} is transformed, but is no input", where=where, remedy=nearest(name, list(columns))
            )
    return dict(given or {})


def transforms_among(agreed: Collection[str], columns: Collection[str]) -> dict[str, str]:
    """The columns that were transformed when these features were agreed on, and how."""
    endings = {f", {how}": how for how in TRANSFORMS}
    return {
        name.removesuffix(ending): how
        for name in agreed
        for ending, how in endings.items()
        if name not in columns and name.endswith(ending) and name.removesuffix(ending) in columns
    }


def transformed(raw: RawFeatures, transform: Mapping[str, str], *, where: str) -> RawFeatures:
    """The features with some of their columns transformed, and named so."""
    if not transform:
        return raw
    numbers = raw.numbers.copy()
    for name in transform:
        if name not in raw.number_names:
            raise DataError(
                f"column {name!r} is transformed, but holds no numbers", where=where, remedy="leave it as it is"
            )
        at = raw.number_names.index(name)
        numbers[:, at] = np.sign(numbers[:, at]) * np.log1p(np.abs(numbers[:, at]))
    names = tuple(transformed_name(name, transform[name]) if name in transform else name for name in raw.names)
    return replace(raw, names=names, numbers=numbers)
