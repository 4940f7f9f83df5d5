"""Columns of a table by which its rows are divided: a time, a group that stays together, or the part itself.

>>> import pandas as pd
>>> values = pd.Series(["train", "Test", "val"])
>>> read_key("column", values, "fold", "row {}".format).tolist()
[0, 2, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyfed.data.features.dates import are_dates, are_durations, duration_days, read_dates
from polyfed.errors import DataError

TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = {
    **dict.fromkeys(("train", "training", "learn"), TRAIN),
    **dict.fromkeys(("validation", "valid", "val", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing", "holdout", "hold-out"), TEST),
}


def read_key(role: str, values: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    """A number for each row: when it was, which group it is of, or which part it belongs to."""
    gaps = values.isna().to_numpy()
    if gaps.any():
        raise _rejected("is empty", name, row_name(int(gaps.argmax())), "fill it in, drop the row, or split otherwise")
    return {"by": _times, "group": _groups, "column": _parts}[role](values, name, row_name)


def _times(values: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    if getattr(values.dtype, "kind", "O") in "iuf":
        return values.to_numpy(dtype=np.float64)
    if are_dates(values):
        return read_dates(values, name, row_name).astype("datetime64[us]").astype(np.float64)
    if are_durations(values):
        return duration_days(values)
    raise _rejected(
        f"is {str(values.iloc[0])!r}, which is neither a date nor a number", name, row_name(0), "split otherwise"
    )


def _groups(values: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    try:
        return values.factorize()[0].astype(np.int64)
    except TypeError:  # lists and dictionaries
        raise _rejected("holds what is no name of a group", name, row_name(0), "give names or numbers") from None


def _parts(values: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    known = {value: PARTS.get(str(value).strip().lower()) for value in values.unique()}
    for value, part in known.items():
        if part is None:
            row = int((values == value).to_numpy().argmax())
            raise _rejected(f"is {str(value)!r}", name, row_name(row), "give train, validation or test")
    return values.map(known).to_numpy(dtype=np.int64)


def _rejected(what: str, name: str, row: str, remedy: str) -> DataError:
    return DataError(f"column {name!r}, by which the rows are split, {what}", where=row, remedy=remedy)
