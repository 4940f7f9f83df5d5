"""Which column of a table says whose row it is, by its name and its shape; and columns that cannot be it.

A client is somebody with several rows: a site, a region, a user. So the name counts first, then whether the values are names
rather than quantities, whether there are several rows of each, and whether other columns are constant within one of them
(the size of a school does not differ among its pupils).

>>> import pandas as pd
>>> table = pd.DataFrame({"device": ["a", "b"] * 15, "client": [*"pqrst"] * 6, "age": range(30)})
>>> [(one.column, one.why) for one in likely_clients(table)]
[('client', 'named like one, 5 different values'), ('device', 'named like one, 2 different values')]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.features.matrix import plain
from polyfed.data.tables.columns import words_of
from polyfed.data.tables.files import Table
from polyfed.data.task import class_name
from polyfed.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Words of names, the surest first.
_WORDS = (
    (4.0, "client"),
    (
        3.0,
        "site hospital clinic ward centre center plant factory school sch store shop branch bank farm station lab laboratory "
        "institution organisation organization org provider practice university college facility warehouse studio",
    ),
    (
        2.5,
        "region district location neighborhood neighbourhood province county state city town village country island colony "
        "precinct tract area zone municipality borough canton parish household family cohort",
    ),
    (2.0, "user patient subject customer owner account person participant driver machine turbine vehicle pump engine"),
    (1.5, "device phone sensor group team department dept unit cluster batch block"),
)
SMALL = 30  # whole numbers from 0 up to less than this are rather counts than names
FEW_ROWS = 5  # of a client, in the middle: less is little to learn from and to measure on
LOOKED_AT = 20_000  # rows; more would say the same
LEAST = 1.0  # points below which a column is no guess
MANY = 20  # clients; a handful with a row each may be an example


@dataclass(frozen=True)
class Likely:
    """A column that may say whose row it is, with its points and why."""

    column: str
    points: float
    why: str


def likely_clients(frame: pd.DataFrame, leave_out: Iterable[str] = ()) -> list[Likely]:
    """The columns that may say whose row it is, the likeliest first."""
    seen = frame if len(frame) <= LOOKED_AT else frame.iloc[:: -(-len(frame) // LOOKED_AT)]
    found = [one for name in frame.columns if name not in leave_out and (one := _judged(frame, seen, name)) is not None]
    return sorted(found, key=lambda one: -one.points)


def reject_one_row_clients(frame: pd.DataFrame, column: str, names: np.ndarray, where: str) -> None:
    """An error if most of the clients that a column names have a single row, with the column that is likelier meant."""
    _, n_rows = np.unique(names, return_counts=True)
    alone = int((n_rows == 1).sum())
    if len(n_rows) < MANY or 2 * alone <= len(n_rows):
        return
    others = likely_clients(frame, leave_out=[column])[:1]
    shown = f"take {others[0].column!r} ({others[0].why})" if others else "take a column whose values repeat"
    lacking = f"{alone} of which have a single row, so that there is nothing to measure on"
    what = f"column {column!r} names {len(n_rows)} clients, {lacking}"
    raise DataError(what, where=where, remedy=f"{shown}, or keep no test rows (test = 0)")


def _judged(frame: pd.DataFrame, seen: pd.DataFrame, name: str) -> Likely | None:
    values = seen[name]
    present = values.dropna()
    if len(present) < 0.99 * len(values):  # every row has an owner
        return None
    try:
        counts = present.value_counts().to_numpy()
    except TypeError:  # lists and dictionaries
        return None
    n, is_number = len(counts), present.dtype.kind in "biuf"
    if not 2 <= n <= max(2, len(present) // 2) or np.median(counts) < 2:
        return None
    named = max((points for points, words in _WORDS if set(words_of(name)) & set(words.split())), default=0.0)
    constant = [] if n < 3 or (is_number and not named) else _constant_within(seen, name)
    points = named + bool(constant) - 1.5 * (n == 2) - (np.median(counts) < FEW_ROWS)
    points -= counts.max() > 0.95 * counts.sum()
    if is_number:
        numbers = present.to_numpy(dtype=np.float64)
        if not (numbers == np.floor(numbers)).all():
            return None
        is_id, is_small = "id" in str(name).lower(), numbers.max() < SMALL
        points += 0.5 * (is_id or not is_small) - 1.5 * (numbers.min() == 0 and is_small and not is_id)
    else:
        points += named > 0 or n > 2
    what = "named like one" if named else "whole numbers" if is_number else "a text"
    why = f"{what}, {frame[name].nunique()} different values"
    if constant and not named:
        why += f", within which {constant[0]!r} does not differ"
    if np.median(counts) < FEW_ROWS:
        why += f", few rows of each ({frame[name].value_counts().median():g} in the middle)"
    surely = named or constant or (n >= 5 and np.median(counts) >= 2 * FEW_ROWS)
    return Likely(str(name), float(points), why) if surely and points >= LEAST else None


def _constant_within(frame: pd.DataFrame, name: str) -> list[str]:
    """The other columns that do not differ among the rows of one value, and yet among the values."""
    codes, distinct = frame[name].factorize()
    found = []
    for other in frame.columns:
        try:
            theirs, levels = frame[other].factorize()
        except TypeError:
            continue
        if other == name or not 3 <= len(levels) <= len(distinct) or (theirs < 0).any():
            continue
        if len(np.unique(codes.astype(np.int64) * len(levels) + theirs)) == len(distinct):
            found.append(str(other))
    return found


def client_names(table: Table, column: str) -> np.ndarray:
    """The name of each row's client as text; a gap in the column must not turn client 1 into 1.0."""
    values = table.column(column)
    try:
        codes, distinct = values.factorize()
    except TypeError:  # lists and dictionaries
        row = next(i for i, value in enumerate(values) if getattr(type(value), "__hash__", None) is None)
        what = f"column {column!r} holds a {type(values.iloc[row]).__name__}, which is no name of a client"
        raise DataError(what, where=table.row_name(row), remedy="give each row the name of one client") from None
    # What is missing has the code −1, the last.
    gaps = np.array([*(isinstance(value, str) and not value.strip() for value in distinct), True])[codes]
    if gaps.any():
        what = f"column {column!r} is empty"
        raise DataError(what, where=table.row_name(int(gaps.argmax())), remedy="say whose row it is, or drop the row")
    read = map(plain, distinct)
    names = [one.decode(errors="backslashreplace") if isinstance(one, bytes) else class_name(one) for one in read]
    if len(set(names)) < len(names):
        first, second = next((i, j) for j in range(len(names)) for i in range(j) if names[i] == names[j])
        what = f"client {names[second]!r} is written in two ways, as {distinct[first]!r} and as {distinct[second]!r}"
        remedy = "make the column text, or numbers, throughout"
        raise DataError(what, where=table.row_name(int((codes == second).argmax())), remedy=remedy)
    return np.array(names)[codes]
