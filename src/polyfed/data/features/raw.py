"""Features before round 0, as one client has them: columns of numbers with gaps, and columns of text.

>>> raw = read_features([[1.5, "red"], [None, "blue"]], where="X")
>>> raw.numbers, raw.texts["x1"].tolist()
(array([[1.5],
       [nan]]), ['red', 'blue'])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import time
from functools import lru_cache, partial
from typing import Any

import numpy as np

from polyfed.data.features.dates import are_dates, are_durations, date_columns, date_of, duration_days
from polyfed.data.features.matrix import as_matrix, is_missing, plain, reject_duplicates, row_name, to_floats
from polyfed.errors import DataError

Place = Callable[[int], str]  # what errors call the row at a position


@dataclass(frozen=True, eq=False)
class RawFeatures:
    """Rows of features as read."""

    names: tuple[str, ...]  # all columns, in the order given; arrays have x0, x1, ...
    # (rows, columns without text) float64, NaN where a value is missing; wholly empty columns are here
    numbers: np.ndarray
    texts: Mapping[str, np.ndarray]  # column → its values, None where one is missing
    named: bool  # whether the names are the user's own
    # column → how it is to be transformed (`transforms`); its numbers are as they came
    transform: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def number_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.texts) if self.texts else self.names

    def take(self, rows: np.ndarray | slice) -> RawFeatures:
        texts = {name: values[rows] for name, values in self.texts.items()}
        return replace(self, numbers=self.numbers[rows], texts=texts)

    def column(self, name: str) -> np.ndarray:
        """One column: of objects if it is text, else of numbers."""
        return self.texts[name] if name in self.texts else self.numbers[:, self.number_names.index(name)]

    def select(self, names: Sequence[str], where: str) -> RawFeatures:
        """These columns in this order; columns without names of their own go by their position."""
        if tuple(names) == self.names:
            return self
        if not self.named:
            if len(names) != len(self.names):
                what = f"has {len(self.names)} columns, not {len(names)}"
                more = f" and {len(names) - 20} more" if len(names) > 20 else ""
                remedy = f"give the columns {', '.join(map(repr, names[:20]))}{more} in this order"
                raise DataError(what, where=where, remedy=remedy)
            texts = {new: self.texts[old] for new, old in zip(names, self.names, strict=True) if old in self.texts}
            return replace(self, names=tuple(names), texts=texts, named=True)
        absent = [name for name in names if name not in self.names]
        if absent:
            what = f"lacks {', '.join(f'column {name!r}' for name in absent)}"
            raise DataError(what, where=where, remedy="add it, empty where it is unknown")
        present = self.number_names
        kept = [present.index(name) for name in names if name not in self.texts]
        texts = {name: self.texts[name] for name in names if name in self.texts}
        return replace(self, names=tuple(names), numbers=self.numbers[:, kept], texts=texts)


def read_features(X: Any, *, where: str, only: Collection[str] | None = None) -> RawFeatures:
    """Check X (a table, array, tensor or list) and copy it.

    `only` are the columns of a table that matter: others may hold anything.
    """
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        names = [str(name) for name in X.columns]
        reject_duplicates(names, where)
        dates = dates_among(only or (), names)
        kept = [i for i, name in enumerate(names) if only is None or name in only or name in dates] or range(len(names))
        columns = {names[i]: X.iloc[:, i] for i in kept}
        place = partial(_place, where, index=X.index)
        return read_columns(columns, where=where, place=place, n_rows=len(X), dates=dates)
    array = as_matrix(X, where)
    names = _names_of_array(array.shape[1])
    if array.dtype.kind not in "biuf":
        if array.dtype.kind not in "mM":  # dates as objects may be bare nanoseconds
            array = array.astype(object)
        columns = dict(zip(names, array.T, strict=True))
        return read_columns(columns, where=where, place=partial(_place, where), n_rows=len(array), named=False)
    if not names:
        raise DataError("has no columns", where=where, remedy="give at least one feature")
    numbers = np.array(array, dtype=np.float64, order="C")
    _reject_infinite(numbers, names, partial(_place, where))
    return RawFeatures(names, numbers, {}, named=False)


def read_columns(
    columns: Mapping[str, Any],
    *,
    where: str,
    place: Place,
    n_rows: int,
    named: bool = True,
    dates: Collection[str] = (),
) -> RawFeatures:
    """Columns of a table, each of which is of numbers (booleans among them), of text or of dates, which become numbers.

    `place` is what errors call the rows by; `dates` are known to be dates, whatever is in them.
    """
    if not columns:
        raise DataError("has no columns", where=where, remedy="give at least one feature")
    read: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        found = _as_dates(column, name, place, known=name in dates)
        read |= found or {name: _read_column(column, name, where, place)}
    texts = {name: values for name, values in read.items() if values.dtype.kind == "O"}
    numbers = {name: values for name, values in read.items() if name not in texts}
    matrix = np.column_stack(list(numbers.values())) if numbers else np.empty((n_rows, 0))
    _reject_infinite(matrix, tuple(numbers), place)
    return RawFeatures(tuple(read), matrix, texts, named)


def dates_among(agreed: Collection[str], columns: Collection[str]) -> list[str]:
    """The columns that were dates when these features were agreed on."""
    found = [date_of(name) for name in agreed if name not in columns]
    return list(dict.fromkeys(name for name in found if name is not None and name in columns))


def stack_features(parts: Sequence[RawFeatures], *, where: str) -> RawFeatures:
    """The rows of all parts, one below the other; the first says the order of the columns."""
    first, *others = parts
    if not others:
        return first
    parts = [first, *(part.select(first.names, where) for part in others)]
    texts = [name for name in first.names if any(name in part.texts for part in parts)]
    if not texts:
        return replace(first, numbers=np.concatenate([part.numbers for part in parts]))
    joined = {name: np.concatenate([_as_text_column(part, name, where) for part in parts]) for name in texts}
    numeric = [name for name in first.names if name not in joined]
    numbers = np.empty((sum(map(len, parts)), len(numeric)))
    for i, name in enumerate(numeric):
        numbers[:, i] = np.concatenate([part.column(name) for part in parts])
    return RawFeatures(first.names, numbers, joined, first.named)


@lru_cache
def _names_of_array(width: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(width))


def _as_text_column(part: RawFeatures, name: str, where: str) -> np.ndarray:
    values = part.column(name)
    if name not in part.texts and not np.isnan(values).all():
        what = f"column {name!r} is text in one part and numbers in another"
        raise DataError(what, where=where, remedy="make it text or numbers throughout")
    return values if name in part.texts else np.full(len(part), None, dtype=object)


def _read_column(column: Any, name: str, where: str, place: Place) -> np.ndarray:
    """The values as floats (NaN: missing), or as objects (text, None: missing)."""
    dtype = column.dtype
    kind = getattr(dtype, "kind", "O")
    if kind in "biuf":
        if isinstance(dtype, np.dtype):
            return np.asarray(column, dtype=np.float64)
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = np.asarray(column.astype(object))
    gaps = np.array(column.isna() if hasattr(column, "isna") else [is_missing(value) for value in values], dtype=bool)
    present = values[~gaps].tolist()
    if present and (hasattr(dtype, "categories") or all(issubclass(t, str) for t in set(map(type, present)))):
        texts = np.full(len(values), None, dtype=object)
        texts[~gaps] = list(map(str, present))
        return texts
    numbers = np.full(len(values), np.nan)
    numbers[~gaps], offender = to_floats(values[~gaps])
    if offender is not None:
        row = int(np.flatnonzero(~gaps)[offender[0]])
        value = plain(values[row])
        if isinstance(value, time):
            what = f"column {name!r} holds times of day such as {str(value)!r}"
            raise DataError(what, where=where, remedy="turn it into numbers such as hours, or drop it")
        what = f"value {value!r} is not a number as others of the column are"
        remedy = "correct it, mark it missing, or make the whole column text"
        raise DataError(what, where=f"{place(row)}, column {name!r}", remedy=remedy)
    return numbers


def _as_dates(column: Any, name: str, place: Place, *, known: bool) -> dict[str, np.ndarray]:
    """The columns of numbers that a column of dates or durations becomes; none if it is something else."""
    if getattr(column.dtype, "kind", "O") in "biuf" and not known:
        return {}
    from pandas import Series

    values = column if hasattr(column, "isna") else Series(column, dtype=object if column.dtype == object else None)
    if known or are_dates(values):
        return date_columns(values, name, place, all_parts=known)
    return {name: duration_days(values)} if are_durations(values) else {}


def _place(where: str, row: int, index: Any = None) -> str:
    return f"{where}, {row_name(row, index)}"


def _reject_infinite(numbers: np.ndarray, names: Sequence[str], place: Place) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        row, column = (int(i) for i in np.unravel_index(infinite.argmax(), infinite.shape))
        what = f"value {numbers[row, column]} is not finite"
        remedy = "correct it or mark it missing with NaN"
        raise DataError(what, where=f"{place(row)}, column {names[column]!r}", remedy=remedy)
