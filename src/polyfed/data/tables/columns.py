"""Which columns of a table are whose labels, and which are features.

>>> task_columns(Task("cured/treated", "proportion"), ["age", "cured", "treated"], "table")
['cured', 'treated']
>>> feature_columns(["age", "cured", "treated"], {"cured/treated": ["cured", "treated"]}, None, [], "table")
['age']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError, nearest
from polyfed.kinds import LabelForm


def task_columns(task: Task, columns: Sequence[str], where: str | None) -> list[str]:
    """The columns of a task's labels; if there are none, an error, or an empty list if `where` is None."""
    if task.form is not LabelForm.PAIR:
        if task.name in columns or where is None:
            return [task.name] if task.name in columns else []
        raise DataError(f"task {task.name!r} has no column", where=where, remedy=nearest(task.name, columns))
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
    columns: Sequence[str],
    found: dict[str, list[str]],
    features: Sequence[str] | None,
    drop: Sequence[str],
    where: str,
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
    """An error with the nearest name if there is no such column."""
    if name not in columns:
        raise DataError(f"has no column {name!r}", where=where, remedy=nearest(name, columns))


def as_names(names: Any) -> list[str] | None:
    """A list of names from one name or several."""
    return None if names is None else [names] if isinstance(names, str) else [str(name) for name in names]
