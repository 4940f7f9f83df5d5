"""Which columns of a table are whose labels, which are features, and which number or name the rows.

>>> task_columns(Task("cured/treated", "proportion"), ["age", "cured", "treated"], "table")
['cured', 'treated']
>>> feature_columns(["age", "cured", "treated"], {"cured/treated": ["cured", "treated"]}, None, [], "table")
['age']
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.features.dates import are_dates
from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError, nearest
from polyfed.kinds import LabelForm

if TYPE_CHECKING:
    import pandas as pd

_NUMBERING = {"id", "index", "number", "nr", "no", "key", "uuid", "guid", "rownames", "rowname", "unnamed", "row"}
NEARLY = 0.95  # the share of different values
FEWEST = 20  # values; among fewer, it cannot be decided


def task_columns(task: Task, columns: Sequence[str], where: str | None) -> list[str]:
    """The columns of a task's labels; if there are none, an error, or an empty list if `where` is None."""
    if task.form is not LabelForm.PAIR:
        if task.name not in columns and where is not None:
            raise DataError(f"task {task.name!r} has no column", where=where, remedy=nearest(task.name, columns))
        return [task.name] if task.name in columns else []
    if "/" not in task.name and where is not None:
        what = f"proportion task {task.name!r} does not say its two columns"
        raise ConfigError(what, remedy="call it 'k/n' after the columns of successes and trials")
    cuts = [i for i, character in enumerate(task.name) if character == "/"]
    pairs = [[task.name[:i], task.name[i + 1 :]] for i in cuts]  # a column's own name may contain a slash
    for pair in pairs:
        if all(name in columns for name in pair):
            return pair
    if where is None:
        return []
    absent = next(name for name in pairs[0] if name not in columns)
    raise DataError(f"task {task.name!r} has no column {absent!r}", where=where, remedy=nearest(absent, columns))


def written_columns(tasks: Iterable[Task], client: str | None = None) -> list[str]:
    """The columns that are read as they are written: class labels, and whose row it is."""
    classes = [task.name for task in tasks if task.form.has_classes]
    return classes if client is None else [*classes, client]


def feature_columns(
    columns: Sequence[str], found: dict[str, list[str]], features: Sequence[str] | None, drop: Sequence[str], where: str
) -> list[str]:
    """The features: those listed, or all columns that are no task's; never those to drop."""
    taken = {column: task for task, names in found.items() for column in names}
    for name in drop:
        find_column(name, columns, where)
    for name in features or ():
        find_column(name, columns, where)
        if name in taken:
            what = f"column {name!r} cannot be a feature: task {taken[name]!r} is to predict it"
            raise ConfigError(what, where=where, remedy="leave it out of features")
    candidates = columns if features is None else features
    chosen = [name for name in candidates if name not in drop and name not in taken]
    if not chosen:
        raise DataError("no column is left for features", where=where, remedy="give at least one")
    return chosen


def find_column(name: str, columns: Sequence[str], where: str) -> None:
    if name not in columns:
        raise DataError(f"has no column {name!r}", where=where, remedy=nearest(name, columns))


def as_names(names: str | Iterable[str] | None) -> list[str] | None:
    return None if names is None else [names] if isinstance(names, str) else [str(name) for name in names]


def words_of(name: str) -> list[str]:
    """The words of a column's name, with and without what is added to them.

    >>> words_of("SchoolID"), words_of("police_precincts")
    (['school', 'id'], ['police', 'precincts', 'precinct'])
    """
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(name)).lower()
    found: dict[str, None] = {}
    for part in filter(None, re.split(r"[^a-z]+", parted)):
        found.update(dict.fromkeys([part, part.removesuffix("s"), part.removesuffix("id") or part]))
    return list(found)


def why_identifier(values: Any) -> str | None:
    """Why a column is taken for an identifier of rows, useless to a model and revealing of persons; None if it is not.

    >>> import pandas as pd
    >>> rows = pd.Series(range(30), name="row_id")
    >>> why_identifier(rows), why_identifier(rows.rename("age"))
    ('different in every row, named like a number of the row', None)
    """
    present = values.dropna()
    if len(present) < FEWEST or present.dtype.kind == "b":
        return None
    try:
        n = int(present.nunique())
    except TypeError:  # lists and dictionaries are for others to reject
        return None
    if n < NEARLY * len(present):
        return None
    rows = "different in every row" if n == len(present) else f"different in {n / len(present):.0%} of the rows"
    if present.dtype.kind in "iuf":
        numbers = present.to_numpy(dtype=np.float64)
        whole = bool((numbers == np.floor(numbers)).all())
        return f"{rows}, named like a number of the row" if whole and is_named_like_one(values.name) else None
    return None if are_dates(present) or present.dtype.kind in "mM" else f"a text that is {rows}"


def is_named_like_one(name: object) -> bool:
    """Whether a name says that it numbers things: row_id, patientID, nr."""
    return bool(_NUMBERING & set(words_of(str(name)))) or str(name).lower().endswith("id")


def without_identifiers(frames: Sequence[pd.DataFrame], columns: list[str], where: str) -> list[str]:
    """The columns, if not all of them, without those that are identifiers in all tables together; it is said which, and how to
    have them."""
    import pandas as pd

    found = {}
    for name in columns:
        held = [frame[name] for frame in frames if name in frame.columns]
        why = why_identifier(held[0] if len(held) == 1 else pd.concat(held, ignore_index=True)) if held else None
        if why is not None:
            found[name] = why
    if len(found) == len(columns):
        return columns
    for name, why in found.items():
        what = f"column {name!r} is left out ({why}); to have it, list it among the features"
        warnings.warn(f"{where}: {what}", stacklevel=2)
    return [name for name in columns if name not in found]
