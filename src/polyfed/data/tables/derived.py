"""Columns made from others by one comparison, such as `disease = num > 0`, or as a logarithm, such as `log(income)`.

A parser of its own: nothing is evaluated.

>>> comparison = Comparison.parse("disease", "num > 0")
>>> comparison.column, comparison.sign, comparison.constant
('num', '>', 0)
>>> import pandas as pd
>>> comparison.of(Table(pd.DataFrame({"num": [0, 3]}), "table", str)).tolist()
[False, True]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt, ne
from reprlib import Repr
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.labels.written import as_labels
from polyfed.data.tables.files import Table
from polyfed.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

_SIGNS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_short = Repr()
_short.maxstring = 100
shorten = _short.repr
# A column in backquotes may have any name; a bare one ends where the sign begins.
_FORM = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<bare>[^`<>=!]+?))\s*(?P<sign>==|!=|<=|>=|<|>)\s*(?P<constant>.+?)\s*"
)
_LOGARITHM = re.compile(r"\s*(?P<function>log1p|log)\s*\(\s*(?:`(?P<quoted>[^`]+)`|(?P<bare>[^`()]+?))\s*\)\s*")


@dataclass(frozen=True)
class Logarithm:
    """A derived column that is the natural logarithm of another, or of one more than it."""

    name: str
    column: str
    function: str  # "log" or "log1p"

    def of(self, table: Table) -> pd.Series:
        values = table.column(self.column)
        if values.dtype.kind not in "biuf":
            what = f"column {self.column!r} holds no numbers, and has no logarithm"
            remedy = "take it of a column of numbers"
            raise DataError(what, where=f"{table.where}, derived column {self.name!r}", remedy=remedy)
        least = 0.0 if self.function == "log" else -1.0
        wrong = (values <= least).to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            what = f"{values.iloc[row]} has no {self.function}"
            remedy = f"use log1p({self.column})" if not (values <= -1.0).any() else "correct it, or leave it empty"
            raise DataError(what, where=f"{table.row_name(row)}, column {self.column!r}", remedy=remedy)
        return getattr(np, self.function)(values)


@dataclass(frozen=True)
class Comparison:
    """What a derived column says of each row: whether this holds; a row without a value is left without one."""

    name: str
    column: str
    sign: str
    constant: float | str

    @classmethod
    def parse(cls, name: str, text: object) -> Comparison:
        """`column sign constant`, where the sign is one of == != < <= > >= and the constant a number or 'text'."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        constant = _constant(found["constant"]) if found else None
        if found is None or constant is None:
            remedy = "write for example num > 0, or `my column` == 'yes', or log(income)"
            raise ConfigError(f"{shorten(text)} is not a comparison", where=f"derived column {name!r}", remedy=remedy)
        if isinstance(constant, str) and found["sign"] not in ("==", "!="):
            what = f"text cannot be compared by {found['sign']}"
            raise ConfigError(what, where=f"derived column {name!r}", remedy="use == or !=")
        return cls(name, found["quoted"] or found["bare"], found["sign"], constant)

    def of(self, table: Table) -> pd.Series:
        """The derived column; in a table without types, texts of numbers are compared as numbers."""
        import pandas as pd

        values, index = table.column(self.column), table.frame.index
        if not table.typed and not isinstance(self.constant, str) and values.dtype.kind == "O":
            natural = as_labels(values)
            if not any(isinstance(value, str) for value in natural) and values.notna().any():
                values = pd.Series(natural, index=index).infer_objects()
        is_number = values.dtype.kind in "biuf"
        if is_number == isinstance(self.constant, str) and values.notna().any():
            held, given = ("numbers", "text") if is_number else ("text", "a number")
            what = f"column {self.column!r} holds {held} and is compared with {given}"
            remedy = "compare it with a value like its own"
            raise DataError(what, where=f"{table.where}, derived column {self.name!r}", remedy=remedy)
        holds = _SIGNS[self.sign](values, self.constant)
        gaps = values.isna().to_numpy()
        if not gaps.any():
            return holds.astype(bool)
        return pd.Series(np.where(gaps, None, holds.to_numpy(dtype=bool)), index=index, dtype=object)


Derived = Comparison | Logarithm


def comparisons(derive: Mapping[str, str] | None) -> list[Derived]:
    made: list[Derived] = []
    for name, text in (derive or {}).items():
        log = _LOGARITHM.fullmatch(text) if isinstance(text, str) else None
        made.append(
            Logarithm(name, log["quoted"] or log["bare"], log["function"]) if log else Comparison.parse(name, text)
        )
    return made


def with_derived(table: Table, derived: list[Derived], *, partly: bool = False) -> Table:
    """The table with further columns; if `partly`, without those whose own column is not there."""
    frame, columns = table.frame, table.columns
    for comparison in derived:
        if partly and comparison.column not in columns:
            continue
        if comparison.name in columns:
            what = f"column {comparison.name!r} cannot be derived: the table has one"
            raise ConfigError(what, where=table.where, remedy="choose another name")
        frame = frame.assign(**{comparison.name: comparison.of(table)})
    return replace(table, frame=frame)


def _constant(text: str) -> float | str | None:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        number = int(text) if text.lstrip("+-").isdecimal() else float(text)
        return number if np.isfinite(float(number)) else None
    except (OverflowError, ValueError):  # no number, or a whole one that no float can be compared with
        return None
