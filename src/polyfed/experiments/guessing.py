"""What the columns of a table seem to be: whose row it is, what could be predicted, what is an input. Guesses, each with why.

>>> import pandas as pd
>>> table = pd.DataFrame({"ward": ["a", "a", "b"], "age": [50.5, 60.1, 70.2], "sick": [0, 1, 0]})
>>> [(g.column, g.role) for g in guess_columns(table)]
[('ward', 'client'), ('age', 'feature'), ('sick', 'binary')]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.table_files import is_table_file, load_table
from polyfed.errors import DataError

_CLIENTS = "client site hospital clinic ward centre center patient user device phone machine plant factory school group subject"
_TARGETS = (
    "target label class outcome y disease diagnosis sick stage status result response score species grade visits steps"
)
MOST_CLASSES = 20
FEW = 30  # a count that matters is small
MOST_TARGETS = 3
LEAST_FAR = 1e-3  # the share of numbers far from the rest that a normal distribution does not have


@dataclass(frozen=True)
class Guess:
    """A column's role: "client", a kind of task, "feature" or "drop"."""

    column: str
    role: str
    why: str


def guess(source: Path) -> list[Guess]:
    """The guesses for a file, or for the first file of a folder with one for each client."""
    if not source.is_dir():
        return guess_columns(load_table(source).frame)
    files = sorted(filter(is_table_file, source.iterdir()))
    if not files:
        raise DataError("has no table in it", where=str(source), remedy="put one file for each client there")
    return guess_columns(load_table(files[0]).frame, in_folder=True)


def guess_columns(frame: Any, *, in_folder: bool = False) -> list[Guess]:
    """One guess for each column, in the order of the columns."""
    client = None if in_folder else _client(frame)
    found = {}
    for name in frame.columns:
        if client is not None and name == client.column:
            found[name] = client
        else:
            found[name] = _feature_or_drop(frame[name])
    candidates = [name for name in frame.columns if found[name].role == "feature" and _sounds_like(name, _TARGETS)]
    if not candidates:  # tables put what they are about at the end, as a rule
        candidates = [name for name in frame.columns if found[name].role == "feature"][-1:]
    for name in candidates[:MOST_TARGETS]:
        kind, why = kind_of(frame[name])
        reason = "named like a target" if _sounds_like(name, _TARGETS) else "the last column"
        found[name] = Guess(name, kind, f"{reason}; {why}")
    return list(found.values())


def kind_of(values: Any) -> tuple[str, str]:
    """The kind of task that predicts a column, and why."""
    present = values.dropna()
    n = int(present.nunique())
    if n == 2:
        return "binary", f"two values, {' and '.join(str(v) for v in sorted(present.unique(), key=str))}"
    if present.dtype.kind not in "biuf":
        return "multiclass", f"{n} texts"
    numbers = present.to_numpy(dtype=np.float64)
    if (numbers >= 0).all() and (numbers == np.floor(numbers)).all() and (numbers == 0).mean() > 0.05:
        return "count", f"whole numbers from 0 to {numbers.max():g}, {(numbers == 0).mean():.0%} of them 0"
    if (numbers >= 0).all() and (numbers == np.floor(numbers)).all() and numbers.max(initial=0) < FEW and n > 2:
        return "count", f"small whole numbers from {numbers.min():g} to {numbers.max():g}"
    far = _far_from_the_rest(numbers)
    if far >= LEAST_FAR * len(numbers) and far > 1:
        if (numbers > 0).all() and _far_from_the_rest(np.log(numbers)) <= 1:
            return "regression", f"{n} numbers, skewed: their logarithm may be easier to predict"
        return "robust", f"{n} numbers, {far} of them far from the rest"
    return "regression", f"{n} numbers"


def _far_from_the_rest(numbers: np.ndarray) -> int:
    """How many lie more than five standard deviations from the median, as the middle half of the numbers measures them.

    Of a normal distribution that is one in two million, of Student's with four degrees of freedom one in two hundred.

    >>> _far_from_the_rest(np.array([*range(100), 500.0]))
    1
    """
    from_median = np.abs(numbers - np.median(numbers))
    spread = 1.4826 * np.median(from_median)  # that of a normal distribution with this middle half
    return int((from_median > 5.0 * spread).sum()) if spread > 0 else 0


def _client(frame: Any) -> Guess | None:
    """The column whose name says so and whose values repeat; else the text with the fewest values that repeat."""
    repeated = {name: int(frame[name].nunique()) for name in frame.columns if frame[name].notna().all()}
    repeated = {name: n for name, n in repeated.items() if 1 < n <= max(2, len(frame) // 2)}
    named = [name for name in repeated if _sounds_like(name, _CLIENTS)]
    if named:
        return Guess(named[0], "client", f"named like one, {repeated[named[0]]} different values")
    texts = [name for name in repeated if frame[name].dtype.kind not in "biuf" and repeated[name] > 2]
    if texts:
        fewest = min(texts, key=lambda name: repeated[name])
        return Guess(fewest, "client", f"a text with {repeated[fewest]} different values")
    return None


def _feature_or_drop(values: Any) -> Guess:
    name, present = str(values.name), values.dropna()
    n = int(present.nunique())
    if n <= 1:
        return Guess(name, "drop", "always the same" if n else "empty")
    if present.dtype.kind not in "biuf":
        if n > MOST_CLASSES:
            return Guess(name, "drop", f"a text with {n} different values")
        return Guess(name, "feature", f"a text with {n} different values")
    if n == len(values) and _sounds_like(name, "id index number nr no key"):
        return Guess(name, "drop", "different in every row, named like a number of the row")
    return Guess(name, "feature", "numbers")


def _sounds_like(name: str, words: str) -> bool:
    parts = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(name)).lower())
    known = words.split()
    return any(
        part in known or part.removesuffix("s") in known or part.removesuffix("id") in known for part in parts if part
    )
