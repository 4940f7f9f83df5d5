"""What the columns of a table seem to be: whose row it is, what could be predicted, what is an input. Guesses, each with why.

>>> import pandas as pd
>>> table = pd.DataFrame({"ward": [*"aabb"], "age": [50.5, 60.1, 70.2, 80.3], "sick": [0, 1, 0, 1]})
>>> [(g.column, g.role) for g in guess_columns(table)]
[('ward', 'client'), ('age', 'feature'), ('sick', 'binary')]
>>> is_skewed(np.exp(2 * np.random.default_rng(0).standard_normal(1000)))
True
>>> is_skewed(np.random.default_rng(0).standard_normal(1000))
False
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.features.dates import are_dates
from polyfed.data.schema.limits import MOST_CATEGORIES
from polyfed.data.tables.client_column import FEW_ROWS, likely_clients
from polyfed.data.tables.columns import is_named_like_one, why_identifier, words_of
from polyfed.data.tables.files import is_table_file, load_table
from polyfed.data.tables.servers import is_url
from polyfed.errors import DataError
from polyfed.kinds import KINDS, LabelForm, own_kinds

if TYPE_CHECKING:
    import pandas as pd

# Words of names of targets, the surest first.
_TARGETS = (
    "target label class outcome y disease diagnosis sick stage status result response species",
    "score math read reading visits steps tat turnaround duration delay ticks search searched problem use used retained health "
    "insurance price cost sales demand yield mass churn default fraud failure failed death died survived mortality "
    "readmission readmitted relapse event events cases claims accidents admissions citation arrest sold bought",
)
MOST_TARGETS = 4
MOST_CLASSES = 20  # of a target that is text
MOST_IDS = 20  # different numbers of what is named like an id; more are no input
FEW = 30  # a count that matters is small
MOST_UNLABELLED = 0.4  # the share of rows without a value, of a target
MOST_ALIKE = 0.9  # the share of rows with the same number, of a target that is a number
TOLD = 0.99  # the area under the curve from which a single number gives a class away
LEAST_ROWS = 50  # of both classes together, to say so; of an input, to call it skewed
FEW_VALUES = 30  # different numbers: fewer are rather a count or a code
LEAST_FAR = 1e-3  # the share of a target's numbers far from the rest that a normal distribution does not have
Column = Any  # a pandas Series; pandas' own types are too wide to be of help
_HOW = "--transform auto lets held-out rows choose"


@dataclass(frozen=True)
class Guess:
    """A column's role: "client", a kind of task, "feature" or "drop"."""

    column: str
    role: str
    why: str


def guess(source: str | Path, query: str | None = None) -> tuple[list[Guess], list[str]]:
    """The guesses for a table, or for the first of a folder with one for each client, and remarks on them."""
    path, in_folder = source, not is_url(source) and Path(source).is_dir()
    if in_folder:
        files = sorted(filter(is_table_file, Path(source).iterdir()))
        if not files:
            raise DataError("has no table in it", where=source, remedy="put one file for each client there")
        path = files[0]
    frame = load_table(path, query=query).frame
    guesses = guess_columns(frame, in_folder=in_folder)
    return guesses, remarks(frame, guesses, in_folder=in_folder)


def guess_columns(frame: pd.DataFrame, *, in_folder: bool = False) -> list[Guess]:
    """One guess for each column, in the order of the columns."""
    likely = [] if in_folder else likely_clients(frame, leave_out=[name for name in frame if _rank(name) == 0])
    found = {name: _feature_or_drop(frame[name]) for name in frame.columns}
    if likely:
        found[likely[0].column] = Guess(likely[0].column, "client", likely[0].why)
    inputs = [name for name in frame.columns if found[name].role == "feature"]
    named = [name for name in inputs if _rank(name) < len(_TARGETS) and _can_be_target(frame[name])]
    candidates = sorted(named, key=_rank)[:MOST_TARGETS]
    if not candidates:  # tables put what they are about at the end, as a rule
        candidates = [name for name in inputs if _can_be_target(frame[name])][-1:]
    for name in candidates if len(inputs) > len(candidates) else candidates[:-1]:
        kind, why = kind_of(frame[name])
        reason = "named like a target" if name in named else "the last column"
        found[name] = Guess(name, kind, f"{reason}; {why}")
    for name, guess in list(found.items()):
        if guess.role == "feature" and (target := _gives_away(frame, name, found)) is not None:
            found[name] = Guess(name, "drop", f"gives {target!r} away: it tells its classes apart alone")
    return list(found.values())


def remarks(frame: pd.DataFrame, guesses: list[Guess], *, in_folder: bool = False) -> list[str]:
    """What is to be known of the guesses beside their reasons."""
    said = []
    client = next((guess.column for guess in guesses if guess.role == "client"), None)
    if client is None and not in_folder:
        said.append("No column says whose row it is, as far as can be seen: name one as client")
    elif client is not None and (rows := frame[client].value_counts()).median() < FEW_ROWS:
        said.append(
            f"Half of the {len(rows)} clients have {rows.median():g} rows or fewer: little to learn from and to measure on"
        )
    inputs = [guess.column for guess in guesses if guess.role == "feature" and frame[guess.column].dtype.kind in "iuf"]
    skewed = [name for name in inputs if is_skewed(frame[name].dropna().to_numpy(dtype=np.float64))]
    if skewed:
        said.append(f"Skewed inputs, whose logarithm or rank may say more ({_HOW}): {', '.join(map(str, skewed))}")
    return said


def kind_of(values: Column) -> tuple[str, str]:
    """The kind of task that predicts a column, and why: the last that knows a reason, for the first are the most general."""
    present = values.dropna()
    guesses = [(name, kind.part("guess")) for name, kind in reversed(KINDS.items()) if kind.guess is not None]
    return next((name, why) for name, guess in guesses if (why := guess(present)) is not None)


def two_values(present: Column) -> str | None:
    """Why a column's values are of a binary task."""
    if present.nunique() != 2:
        return None
    return f"two values, {' and '.join(str(v) for v in sorted(present.unique(), key=str))}"


def texts(present: Column) -> str | None:
    """Why they are of a multiclass task."""
    return None if _is_number(present) or present.nunique() == 2 else f"{present.nunique()} texts"


def whole_numbers(present: Column) -> str | None:
    """Why they are counts."""
    if not _is_number(present) or present.nunique() == 2:
        return None
    numbers = present.to_numpy(dtype=np.float64)
    if not ((numbers >= 0) & (numbers == np.floor(numbers))).all():
        return None
    if (numbers == 0).mean() > 0.05:
        return f"whole numbers from 0 to {numbers.max():g}, {(numbers == 0).mean():.0%} of them 0"
    if numbers.max(initial=0) < FEW and present.nunique() > 2:
        return f"small whole numbers from {numbers.min():g} to {numbers.max():g}"
    return None


def outliers(present: Column) -> str | None:
    """Why they are numbers with outliers."""
    values = present.to_numpy(dtype=np.float64)  # what is no number is a class, and claimed before
    if is_skewed_target(values) or not has_far_ones(values):
        return None
    return f"{present.nunique()} numbers, {far_from_the_rest(values)} of them far from the rest"


def numbers(present: Column) -> str:
    """What else they are."""
    skewed = is_skewed_target(present.to_numpy(dtype=np.float64))
    hint = ", skewed: their logarithm may be easier to predict (--transform auto)" if skewed else ""
    return f"{present.nunique()} numbers{hint}"


def _is_number(present: Column) -> bool:
    return present.dtype.kind in "biuf"


def _feature_or_drop(values: Column) -> Guess:
    name, present = str(values.name), values.dropna()
    n = int(present.nunique())
    if n <= 1:
        return Guess(name, "drop", "always the same" if n else "empty")
    if (why := why_identifier(values)) is not None:
        return Guess(name, "drop", why)
    if are_dates(present):
        return Guess(name, "feature", "dates: they become days, years, seasons and weekdays")
    if not _is_number(present):
        grouped = f", of which the {MOST_CATEGORIES} most frequent count" if n > MOST_CATEGORIES else ""
        return Guess(name, "feature", f"a text with {n} different values{grouped}")
    if n > MOST_IDS and is_named_like_one(name) and (present == np.floor(present)).all():
        return Guess(name, "drop", f"{n} whole numbers, named like those that name something")
    return Guess(name, "feature", "numbers")


def _can_be_target(values: Column) -> bool:
    """Whether it has enough labels, of a kind that can be predicted."""
    present = values.dropna()
    if len(present) < (1 - MOST_UNLABELLED) * len(values) or are_dates(present):
        return False
    n = int(present.nunique())
    if _is_number(present):
        return n == 2 or float((present == present.mode().iloc[0]).mean()) < MOST_ALIKE
    return n <= MOST_CLASSES


def _gives_away(frame: pd.DataFrame, name: str, found: Mapping[str, Guess]) -> str | None:
    """The binary target whose classes this number tells apart nearly without fail, if there is one."""
    values: Column = frame[name]
    if values.dtype.kind not in "iuf" or values.nunique() <= 2:
        return None
    for target in (column for column, guess in found.items() if guess.role in own_kinds(LabelForm.BINARY)):
        both = (values.notna() & frame[target].notna()).to_numpy()
        is_first = (frame[target][both] == frame[target][both].min()).to_numpy()
        n_first, n_second = int(is_first.sum()), int((~is_first).sum())
        if n_first + n_second < LEAST_ROWS or not n_first or not n_second:
            continue
        ranks = values[both].rank().to_numpy()  # the Mann-Whitney statistic is the area under the curve
        area = (ranks[is_first].sum() - n_first * (n_first + 1) / 2) / (n_first * n_second)
        if max(area, 1 - area) > TOLD:
            return str(target)
    return None


def _rank(name: object) -> int:
    """How sure the name of a column is one of a target, from 0; len(_TARGETS) if it is not."""
    words = set(words_of(str(name)))
    return next((i for i, known in enumerate(_TARGETS) if words & set(known.split())), len(_TARGETS))


def far_from_the_rest(numbers: np.ndarray) -> int:
    """How many lie more than five standard deviations from the median, as the middle half of the numbers measures them.

    Of a normal distribution that is one in two million, of Student's with four degrees of freedom one in two hundred.

    >>> far_from_the_rest(np.array([*range(100), 500.0]))
    1
    """
    from_median = np.abs(numbers - np.median(numbers))
    spread = 1.4826 * np.median(from_median)  # that of a normal distribution with this middle half
    return int((from_median > 5.0 * spread).sum()) if spread > 0 else 0


def is_skewed(numbers: np.ndarray) -> bool:
    """Whether an input is never negative with a few values far above the rest, and its logarithms are not."""
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < LEAST_ROWS or numbers.min() < 0 or len(np.unique(numbers)) <= FEW_VALUES:
        return False
    far, log_far = far_from_the_rest(numbers), far_from_the_rest(np.log1p(numbers))
    return far >= 0.01 * len(numbers) and 2 * log_far < far


def has_far_ones(numbers: np.ndarray) -> bool:
    """Whether more of a target's numbers are far from the rest than those of a normal distribution are."""
    far = far_from_the_rest(numbers)
    return far >= LEAST_FAR * len(numbers) and far > 1


def is_skewed_target(numbers: np.ndarray) -> bool:
    """Whether a target is positive with a few values far above the rest, and its logarithms are not."""
    return bool((numbers > 0).all()) and has_far_ones(numbers) and far_from_the_rest(np.log(numbers)) <= 1
