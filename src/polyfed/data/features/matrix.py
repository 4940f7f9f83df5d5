"""Features as users have them (tables, arrays, tensors, lists) become one matrix of float64.

>>> as_features([[1, 2], [3, 4]]).values
array([[1., 2.],
       [3., 4.]])
>>> as_features([1.0, 2.0])
Traceback (most recent call last):
polyfed.errors.DataError: X: has shape (2,), not (rows, columns); if it is one column, use X.reshape(-1, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from polyfed.errors import DataError

_ENCODE = "encode it as numbers, e.g. pandas.get_dummies"


@dataclass(frozen=True, eq=False)
class Features:
    """A matrix of finite numbers, one row for each example, and its column names if it came with any."""

    values: np.ndarray
    names: tuple[str, ...] | None


def as_features(X: Any, *, where: str = "X", names: Sequence[str] | None = None, width: int | None = None) -> Features:
    """Check X and copy it into float64.

    `names` are the columns that the model was fitted on: a table is put into their order, without its other
    columns, and anything that has no names must be as wide. `width` is for models that know no names.
    """
    width = width if names is None else len(names)
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        found, values = _from_frame(X, where, names)
    else:
        found, values = None, _from_array(X, where)
    if width is not None and values.shape[1] != width:
        raise DataError(
            f"has {values.shape[1]} columns but the model was fitted on {width}",
            where=where,
            remedy="give the columns of the training data",
        )
    if values.shape[1] == 0:
        raise DataError("has no columns", where=where, remedy="give at least one feature")
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(i) for i in np.unravel_index(bad.argmax(), bad.shape))
        value = values[row, column]
        raise DataError(
            f"value {value} is {'missing' if np.isnan(value) else 'not finite'}",
            where=f"{where}, {row_name(row, getattr(X, 'index', None))}, {_column_name(column, found)}",
            remedy="fill it in or drop the row",
        )
    return Features(values, found)


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


def is_missing(value: Any) -> bool:
    """None, NaN, and pandas' NA and NaT (known by name, so that pandas need not be imported)."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, Decimal, np.generic)) and bool(value != value)


def as_number(value: Any) -> float | None:
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


def row_name(row: int, index: Any = None) -> str:
    """How errors call a row: its position, and its label where a table has a label of its own for it.

    An index may know better, as that of a file does ("line 7 of ..."): then it has a method `row_name`.
    """
    if hasattr(index, "row_name"):
        return index.row_name(row)
    label = repr(row if index is None or callable(index) else plain(index[row]))  # lists have a method `index`
    return f"row {row}" if label == repr(row) else f"row {row} (index {label})"


def reads_as_number(value: Any) -> bool:
    """Whether a text is a number that was written down."""
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _column_name(column: int, names: Sequence[str] | None) -> str:
    return f"column {column if names is None else repr(names[column])}"


def _from_frame(X: Any, where: str, wanted: Sequence[str] | None) -> tuple[tuple[str, ...], np.ndarray]:
    present = [str(name) for name in X.columns]
    reject_duplicates(present, where)
    names = tuple(present if wanted is None else wanted)
    absent = [name for name in names if name not in present]
    if absent:
        raise DataError(
            f"lacks {', '.join(f'column {name!r}' for name in absent)} of the training data",
            where=where,
            remedy="add what is missing or fit the model without it",
        )
    columns = [_from_column(X.iloc[:, present.index(name)], where, f"column {name!r}") for name in names]
    return names, np.column_stack(columns) if columns else np.empty((len(X), 0))


def _from_column(column: Any, where: str, name: str) -> np.ndarray:
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf":
        if isinstance(column.dtype, np.dtype):
            return column.to_numpy(dtype=np.float64)
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _numbers_or_error(
        column.astype(object).to_numpy(), lambda at: f"{where}, {row_name(at[0], column.index)}, {name}"
    )


def as_matrix(X: Any, where: str) -> np.ndarray:
    """X as an array with rows and columns: of numbers, or of objects if some entry is no number."""
    if hasattr(X, "toarray"):
        raise DataError("is a sparse matrix", where=where, remedy="give X.toarray()")
    is_list = isinstance(X, (list, tuple))
    try:
        array = to_numpy([to_numpy(row) if hasattr(row, "detach") else row for row in X] if is_list else X)
    except ValueError:
        raise DataError(
            "has rows of different lengths", where=where, remedy="give every row the same number of values"
        ) from None
    if array.ndim != 2:
        raise DataError(
            f"has shape {array.shape}, not (rows, columns)", where=where, remedy=_shape_remedy(X, array.ndim)
        )
    if is_list and array.dtype.kind not in "biuf":
        array = np.array(X, dtype=object)  # numpy turned every entry into text because one of them is
    return array


def reject_duplicates(names: Sequence[str], where: str) -> None:
    """Column names must tell the columns apart."""
    if len(set(names)) < len(names):
        twin = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"column {twin!r} appears twice", where=where, remedy="rename or drop one of them")


def _from_array(X: Any, where: str) -> np.ndarray:
    array = as_matrix(X, where)
    if array.dtype.kind in "biuf":
        return np.array(array, dtype=np.float64, order="C")  # a copy: later changes to X must not reach the model
    return _numbers_or_error(array, lambda at: f"{where}, {row_name(at[0])}, column {at[1]}")


def _shape_remedy(X: Any, ndim: int) -> str:
    if ndim == 0:
        return "give a table with one row for each example"
    if ndim == 1:
        return f"if it is one column, use X.{'to_frame()' if hasattr(X, 'to_frame') else 'reshape(-1, 1)'}"
    return "flatten each example, for example X.reshape(len(X), -1)"


def _numbers_or_error(array: np.ndarray, where: Callable[[tuple[int, ...]], str]) -> np.ndarray:
    numbers, offender = to_floats(array)
    if offender is not None:
        raise DataError(f"value {plain(array[offender])!r} is not a number", where=where(offender), remedy=_ENCODE)
    return numbers
