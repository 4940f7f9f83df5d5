"""Matrices and values as users have them (arrays, tensors, lists and their entries), as numpy and as JSON have them.

>>> as_matrix([[1, 2], [3, 4]], "X")
array([[1, 2],
       [3, 4]])
>>> as_matrix([1.0, 2.0], "X")
Traceback (most recent call last):
polyfed.errors.DataError: X: has shape (2,), not (rows, columns); if it is one column, use X.reshape(-1, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from polyfed.errors import ConfigError, DataError, PolyfedError


class Described:
    """A dataclass that goes into JSON with all its fields."""

    def to_dict(self) -> dict[str, Any]:
        return {name: _as_json(value) for name, value in vars(self).items()}


def _as_json(value: object) -> object:
    if isinstance(value, (Described, np.ndarray)):
        return value.to_dict() if isinstance(value, Described) else value.tolist()
    if isinstance(value, Mapping):
        return {key: _as_json(one) for key, one in value.items()}
    return [_as_json(one) for one in value] if isinstance(value, (tuple, list)) else value


def to_numpy(values: Any) -> np.ndarray:
    """An array of whatever holds values: tensors, lists, pandas columns and masked arrays with their gaps."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return values.float().numpy() if "bfloat16" in str(values.dtype) else values.numpy()
    if isinstance(values, np.ma.MaskedArray):
        gaps = np.ma.getmaskarray(values)
        values = values.data.astype(object)
        values[gaps] = None
        return values
    if hasattr(values, "astype") and not isinstance(getattr(values, "dtype", None), np.dtype):
        return np.asarray(values.astype(object))  # nullable and categorical columns: numpy's own types have no NA
    return np.asarray(values)


def plain(value: Any) -> Any:
    """The Python scalar inside a numpy or torch scalar; anything else as it is."""
    if isinstance(value, (np.datetime64, np.timedelta64)):  # theirs may be a bare integer
        return value
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def is_missing(value: object) -> bool:
    """None, NaN, and pandas' NA and NaT (known by name, so that pandas need not be imported)."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, Decimal, np.generic)) and bool(value != value)


def as_number(value: object) -> float | None:
    """The value as a float, NaN if it is missing, None if it is no number (text of digits is text)."""
    value = plain(value)
    if is_missing(value):
        return np.nan
    if not isinstance(value, (Real, Decimal)) or isinstance(value, np.timedelta64):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float, which is rejected as infinite values are
        return np.inf


def to_floats(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...] | None]:
    """The entries as floats, and the position of one that is no number, if there is one.

    One word makes numpy turn a whole array into text, so a text without digits is the better one to name.
    """
    if array.dtype.kind in "biuf":
        return array.astype(np.float64), None
    numbers = np.full(array.shape, np.nan)
    offender = None
    for at, value in np.ndenumerate(array):
        number = as_number(value)
        if number is not None:
            numbers[at] = number
        elif not reads_as_number(value):
            return numbers, at
        elif offender is None:
            offender = at
    return numbers, offender


@contextmanager
def at(place: str) -> Iterator[None]:
    """Errors inside this block that name no place are at this one."""
    try:
        yield
    except PolyfedError as error:
        if error.where:
            raise
        raise type(error)(error.what, where=place, remedy=error.remedy) from None


def row_name(row: int, index: Any = None) -> str:
    """How errors call a row: its position, and its label where a table has a label of its own for it."""
    label = repr(row if index is None or callable(index) else plain(index[row]))  # lists have a method `index`
    return f"row {row}" if label == repr(row) else f"row {row} (index {label})"


def reads_as_number(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def as_matrix(X: Any, where: str) -> np.ndarray:
    """X as an array with rows and columns: of numbers, or of objects if some entry is no number."""
    if hasattr(X, "toarray"):
        raise DataError("is a sparse matrix", where=where, remedy="give X.toarray()")
    is_list = isinstance(X, (list, tuple))
    try:
        array = to_numpy([to_numpy(row) if hasattr(row, "detach") else row for row in X] if is_list else X)
    except ValueError:
        what = "has rows of different lengths"
        raise DataError(what, where=where, remedy="give every row the same number of values") from None
    if array.ndim != 2:
        how = "to_frame()" if hasattr(X, "to_frame") else "reshape(-1, 1)"
        remedies = {0: "give a table with one row for each example", 1: f"if it is one column, use X.{how}"}
        remedy = remedies.get(array.ndim, "flatten each example, for example X.reshape(len(X), -1)")
        raise DataError(f"has shape {array.shape}, not (rows, columns)", where=where, remedy=remedy)
    if is_list and array.dtype.kind not in "biuf":
        array = np.array(X, dtype=object)  # numpy turned every entry into text because one of them is
    return array


def reject_duplicates(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        twin = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"column {twin!r} appears twice", where=where, remedy="rename or drop one of them")


def reject_unless_whole(where: str, least: int, **options: int) -> None:
    for option, value in options.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            what = f"{option}={value!r} is not a whole number that will do"
            raise ConfigError(what, where=where, remedy=f"give {least} or more")


def reject_unless_between(where: str, low: float, high: float, **options: float) -> None:
    for option, value in options.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) < high:
            what = f"{option}={value!r} is out of range"
            raise ConfigError(what, where=where, remedy=f"give at least {low:g} and less than {high:g}")
