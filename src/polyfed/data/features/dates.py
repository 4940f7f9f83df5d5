"""Dates become numbers that mean the same at every client, so that nobody has to agree on them.

A column of dates is several columns of numbers: days since 2000-01-01, the year, the day of the year and the weekday as points
on a circle, and the time of day as well if there are times. They are those of the clock on the wall where the row was
written: an offset from UTC is passed over.

>>> import pandas as pd
>>> made = date_columns(pd.Series(["2000-01-03", "2001-07-02"]), "seen", "row {}".format)
>>> list(made)
['seen, days', 'seen, year', 'seen, year sin', 'seen, year cos', 'seen, week sin', 'seen, week cos']
>>> made["seen, days"].tolist(), made["seen, week cos"].tolist()  # two Mondays
([2.0, 548.0], [1.0, 1.0])
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from polyfed.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_ISO = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d.*)?")
_WRITTEN = re.compile(r"(\d{1,2})([./])(\d{1,2})\2(\d{4}|\d{2})( .*)?")
_OFFSET = re.compile(r"(:\d{2}(?:\.\d+)?)\s*(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)$")
EPOCH = np.datetime64("2000-01-01")
DAYS = "days"
PARTS = (DAYS, "year", "year sin", "year cos", "week sin", "week cos", "day sin", "day cos")


def date_of(name: str) -> str | None:
    """The column of dates that a number was made of, if its name says so.

    >>> date_of("seen, year sin"), date_of("age")
    ('seen', None)
    """
    column, comma, part = name.rpartition(", ")
    return column if comma and part in PARTS else None


def are_dates(values: pd.Series) -> bool:
    """Whether a column holds dates, by its type or by how all of its values are written; durations are none."""
    if (kind := values.dtype.kind) in "biufmM":
        return kind == "M"
    present = values.dropna()
    if not len(present) or hasattr(values.dtype, "categories"):
        return False
    first = present.iloc[0]
    if isinstance(first, date):
        return all(isinstance(value, date) for value in present)
    if not isinstance(first, str) or not _looks_like_one(first):
        return False
    return all(isinstance(value, str) and _looks_like_one(value) for value in present.unique())


def are_durations(values: pd.Series) -> bool:
    if values.dtype.kind == "m":
        return True
    present = values.dropna() if values.dtype == object else ()
    return len(present) > 0 and all(isinstance(value, timedelta) for value in present)


def date_columns(
    values: pd.Series, name: str, row_name: Callable[[int], str], *, all_parts: bool = False
) -> dict[str, np.ndarray]:
    """A column of dates as columns of numbers; where there is no date, days and year are missing and the rest is 0.

    The time of day is among them if there is one at all, or if `all_parts` are asked for.
    """
    moments = read_dates(values, name, row_name)
    known = ~np.isnat(moments)
    filled = np.where(known, moments, EPOCH.astype(moments.dtype))
    day = filled.astype("datetime64[D]")
    since = (day - EPOCH).astype(np.float64)
    of_day = (filled - day) / np.timedelta64(1, "D")
    year = day.astype("datetime64[Y]")
    following = (year + 1).astype("datetime64[D]")
    of_year = (day - year) / (following - year.astype("datetime64[D]"))
    circles = {"year": of_year, "week": ((since + 5) % 7) / 7}  # 2000-01-01 is a Saturday, and weeks begin on Mondays
    if all_parts or of_day[known].any():
        circles["day"] = of_day
    numbers = {DAYS: since + of_day, "year": 1970.0 + year.astype(np.int64)}
    made = {part: np.where(known, number, np.nan) for part, number in numbers.items()}
    for circle, turn in circles.items():
        for wave in (np.sin, np.cos):
            made[f"{circle} {wave.__name__}"] = np.where(known, wave(2 * np.pi * turn), 0.0)
    return {f"{name}, {part}": made[part] for part in PARTS if part in made}


def duration_days(values: pd.Series) -> np.ndarray:
    import pandas as pd

    return pd.to_timedelta(values).to_numpy().astype("timedelta64[ns]") / np.timedelta64(1, "D")


def read_dates(values: pd.Series, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    """The dates of a column as numpy has them, NaT where there is none, or an error at the first that is none."""
    import pandas as pd

    if values.dtype.kind == "M":
        local = values.dt.tz_localize(None) if getattr(values.dt, "tz", None) is not None else values
        return local.to_numpy().astype("datetime64[us]")
    gaps = values.isna().to_numpy()
    usable = values.map(lambda value: isinstance(value, (str, date))).to_numpy(dtype=bool) & ~gaps
    moments = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    if usable.any():
        present = values.loc[usable].astype(object).map(_local)
        if isinstance(present.iloc[0], str):
            present = _as_iso(present, name, lambda at: row_name(int(np.flatnonzero(usable)[at])))
        read = pd.to_datetime(present, format="ISO8601", errors="coerce")
        moments[usable] = read.to_numpy().astype("datetime64[us]")
    wrong = np.isnat(moments) & ~gaps
    if wrong.any():
        row = int(wrong.argmax())
        what, where = f"{str(values.iloc[row])!r} is no date", f"{row_name(row)}, column {name!r}"
        raise DataError(what, where=where, remedy="correct it as YYYY-MM-DD, leave it empty, or drop the column")
    return moments


def _local(value: str | date) -> str | date:
    """Without its offset: the clock on the wall counts."""
    if isinstance(value, str):
        return _OFFSET.sub(r"\1", value.strip())
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _looks_like_one(text: str) -> bool:
    return any(form.fullmatch(text.strip()) for form in (_ISO, _WRITTEN))


def _as_iso(texts: pd.Series, name: str, row_name: Callable[[int], str]) -> pd.Series:
    """Dates that begin with the day or the month as those that begin with the year."""
    found = texts.str.extract(_WRITTEN)
    other = found[0].notna().to_numpy()
    if not other.any():
        return texts
    first, second = (found[i][other].astype(int).to_numpy() for i in (0, 2))
    dotted = bool((found[1][other] == ".").all())  # with points the day comes first wherever they are used
    day_first, month_first = dotted or bool((first > 12).any()), not dotted and bool((second > 12).any())
    if day_first == month_first:
        at = int(np.flatnonzero(other)[0 if not day_first else (first > 12).argmax()])
        unclear = "it is not said whether the day or the month comes first"
        why = "days and months change places" if day_first else unclear
        what = f"{str(texts.iloc[at])!r} can be read in two ways: {why}"
        remedy = "write dates as YYYY-MM-DD, or drop the column"
        raise DataError(what, where=f"{row_name(at)}, column {name!r}", remedy=remedy)
    day, month = (found[0], found[2]) if day_first else (found[2], found[0])
    short = found[3].str.len() == 2
    century = np.where(found[3].fillna("0").astype(int) < 69, "20", "19")  # as POSIX has it
    year = found[3].where(~short, century + found[3])
    iso = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + found[4].fillna("")
    return texts.where(~other, iso)
