"""Tables of users become clients: which column says whose row it is, which are tasks, which are features.

>>> import pandas as pd
>>> table = pd.DataFrame({"ward": ["b", "a", "b"], "age": [50, 60, 70], "pulse": [80, None, 60]})
>>> clients = read_clients(table, [Task("pulse")], client="ward")
>>> list(clients), clients["b"].features.numbers.tolist(), clients["b"].labels["pulse"].values
(['a', 'b'], [[50.0], [70.0]], array([80., 60.]))
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.features.dates import date_of
from polyfed.data.features.matrix import is_missing
from polyfed.data.features.raw import dates_among, read_columns
from polyfed.data.features.transforms import checked_transform, to_transform
from polyfed.data.labels.column import Labels
from polyfed.data.labels.weights import KEY, read_weights
from polyfed.data.labels.written import EMPTY, USUAL, as_labels, checked_missing
from polyfed.data.raw import RawClient, at_client, read_labels
from polyfed.data.split_columns import read_key
from polyfed.data.splits import DEFAULT_SPLIT, Split
from polyfed.data.tables.client_column import client_names, reject_one_row_clients
from polyfed.data.tables.columns import as_names, feature_columns, find_column, task_columns, written_columns
from polyfed.data.tables.derived import Derived, comparisons, with_derived
from polyfed.data.tables.files import Table, is_table_file, is_table_source, load_table, matching_files, stem_of
from polyfed.data.tables.identifiers import left_out
from polyfed.data.tables.queries import is_database
from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError
from polyfed.kinds import LabelForm

__all__ = ["is_table_source", "read_client_table", "read_clients", "read_own_table"]


@dataclass(frozen=True)
class _Rows:
    """An index for errors: what they call the row at a position."""

    row_name: Any


def read_clients(
    source: Any,
    tasks: Sequence[Task],
    *,
    client: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    derive: Mapping[str, str] | None = None,
    missing: Sequence[str] | None = None,
    split: Split = DEFAULT_SPLIT,
    query: str | None = None,
    transform: Mapping[str, str] | None = None,
    weights: str | None = None,
) -> dict[str, RawClient]:
    """All clients of a table, or of a folder (or a pattern) with one file for each client; with the columns by which `split`
    divides rows, and the one of `weights`."""
    missing = checked_missing(missing)
    features, drop, derived = _choices(tasks, features, drop, derive, split, weights)
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        if client is not None:
            raise ConfigError(
                f"client={client!r}, but in a folder the names of the files are the clients",
                where=str(source),
                remedy="leave client out",
            )
        files = [path for path in sorted(Path(source).iterdir()) if is_table_file(path) and not is_database(path)]
        return _read_folder(files, str(source), tasks, features, drop, derived, missing, split, transform, weights)
    if client is None and isinstance(source, (str, os.PathLike)) and (files := matching_files(source)) is not None:
        return _read_folder(files, str(source), tasks, features, drop, derived, missing, split, transform, weights)
    written = written_columns(tasks, client)
    table = with_derived(load_table(source, written=written, missing=missing, query=query), derived)
    columns = list(table.frame.columns)
    if client is None:
        raise ConfigError(
            "which column says whose row it is?", where=table.where, remedy=f"give client=..., one of {columns}"
        )
    find_column(client, columns, table.where)
    names = client_names(table, client)
    found = {task.name: task_columns(task, columns, table.where) for task in tasks}
    for role, taken in (("predicted", [name for own in found.values() for name in own]), ("a feature", features or ())):
        if client in taken:
            raise ConfigError(
                f"column {client!r} says whose row it is and cannot be {role}", where=table.where, remedy="leave it out"
            )
    if split.test or split.validation:
        reject_one_row_clients(table.frame, client, names, table.where)
    chosen = feature_columns(columns, found, features, [*drop, client], table.where)
    if features is None:
        chosen = _without_identifiers([table.frame], chosen, table.where)
    members, member = np.unique(names, return_inverse=True)
    rows = _Rows(lambda row: f"{table.row_name(row)} (client {str(names[row])!r})")
    return _shared_out(
        _read_rows(table, tasks, found, chosen, rows, split=split, transform=transform, weights=weights),
        members.tolist(),
        member,
    )


def read_own_table(
    source: str | Path,
    tasks: Sequence[Task],
    *,
    name: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    derive: Mapping[str, str] | None = None,
    missing: Sequence[str] | None = None,
    split: Split = DEFAULT_SPLIT,
    transform: Mapping[str, str] | None = None,
    weights: str | None = None,
) -> tuple[str, RawClient]:
    """A client that brings its own file: its name (as given, as the column `client` says, or as the file is called)
    and its data. What others have it cannot know: a task or a column to drop that its file lacks is passed over."""
    features, drop, derived = _choices(tasks, features, drop, derive, split, weights)
    read = load_table(source, written=written_columns(tasks, client), missing=checked_missing(missing))
    table = with_derived(read, derived, partly=True)
    if client is not None and client in table.frame.columns:
        found = sorted(set(client_names(table, client)))
        if len(found) > 1:
            raise DataError(
                f"column {client!r} names {len(found)} clients",
                where=table.where,
                remedy="give each client a file of its own",
            )
        name, drop = name or str(found[0]), [*drop, client]
    name = name or stem_of(Path(source))
    with at_client(name):
        return name, _read_file(table, tasks, features, drop, split, transform, weights)


def _choices(
    tasks: Sequence[Task], features: Any, drop: Any, derive: Mapping[str, str] | None, split: Split, weights: str | None
) -> tuple[list[str] | None, list[str], list[Derived]]:
    """Features, columns to drop, and columns to derive."""
    features, drop, derived = as_names(features), as_names(drop) or [], comparisons(derive)
    # A time may be an input; whose row it is or to which part it belongs tells nothing of other rows.
    drop = [*drop, *(split.columns[role] for role in ("group", "column") if role in split.columns)]
    drop += [] if weights is None else [weights]
    # The column that a task is derived from would give its labels away.
    given_away = [d.column for d in derived if d.name in {task.name for task in tasks}]
    return features, list(dict.fromkeys([*drop, *(c for c in given_away if c not in (features or ()))])), derived


def read_client_table(name: str, source: Any, tasks: Sequence[Task], features: Sequence[str]) -> RawClient:
    """One client that joins: a table with these features and the columns of the tasks that it has."""
    with at_client(name):
        table = load_table(source, written=written_columns(tasks))
        columns = list(table.frame.columns)
        found = {task.name: task_columns(task, columns, None) for task in tasks}
        dates = dates_among(features, columns)
        made = {name for name in features if date_of(name) in dates}
        chosen = [name for name in features if name not in made or name in columns]
        for feature in chosen:
            find_column(feature, columns, table.where)
        rows = _Rows(table.row_name)
        return _read_rows(table, tasks, found, [*chosen, *dates], rows, dates)


def _read_folder(
    files: Sequence[Path],
    folder: str,
    tasks: Sequence[Task],
    features: Sequence[str] | None,
    drop: Sequence[str],
    derived: list[Derived],
    missing: tuple[str, ...] | None,
    split: Split,
    transform: Mapping[str, str] | None,
    weights: str | None,
) -> dict[str, RawClient]:
    if not files:
        raise DataError(
            "has no table in it",
            where=folder,
            remedy="put one .csv, .csv.gz or .parquet file for each client there",
        )
    written = written_columns(tasks)
    tables: dict[str, Table] = {}
    for path in files:
        name = stem_of(path)
        if name in tables:
            raise DataError(f"two files are of client {name!r}", where=folder, remedy="keep one of them")
        with at_client(name):
            tables[name] = with_derived(load_table(path, written=written, missing=missing), derived, partly=True)
    all_columns = dict.fromkeys(column for table in tables.values() for column in table.frame.columns)
    if features is None:
        free = [column for column in all_columns if column not in (*drop, *(task.name for task in tasks))]
        kept = _without_identifiers([table.frame for table in tables.values()], free, folder)
        drop = [*drop, *(column for column in free if column not in kept)]
    clients: dict[str, RawClient] = {}
    for name, table in tables.items():
        with at_client(name):
            clients[name] = _read_file(table, tasks, features, drop, split, transform, weights)
    for task in tasks:  # a client may lack a task, but not all of them
        task_columns(task, list(all_columns), folder)
    for name in drop:
        find_column(name, list(all_columns), folder)
    return clients


def _without_identifiers(frames: Sequence[Any], chosen: list[str], where: str) -> list[str]:
    """The features without those that number or name the rows; it is said which, and how to have them."""
    found = left_out(frames, chosen)
    for name, why in found.items():
        warnings.warn(
            f"{where}: column {name!r} is left out ({why}); to have it, list it among the features", stacklevel=2
        )
    return [name for name in chosen if name not in found]


def _read_file(
    table: Table,
    tasks: Sequence[Task],
    features: Sequence[str] | None,
    drop: Sequence[str],
    split: Split,
    transform: Mapping[str, str] | None,
    weights: str | None,
) -> RawClient:
    """All rows of a table that is one client's; it may lack some tasks, and columns that are to be dropped."""
    columns = list(table.frame.columns)
    found = {task.name: task_columns(task, columns, None) for task in tasks}
    chosen = feature_columns(columns, found, features, [name for name in drop if name in columns], table.where)
    return _read_rows(
        table, tasks, found, chosen, _Rows(table.row_name), split=split, transform=transform, weights=weights
    )


def _read_rows(
    table: Table,
    tasks: Sequence[Task],
    found: dict[str, list[str]],
    features: Sequence[str],
    index: _Rows,
    dates: Sequence[str] = (),
    split: Split = DEFAULT_SPLIT,
    transform: Mapping[str, str] | None = None,
    weights: str | None = None,
) -> RawClient:
    """All rows of the table as if they were one client's."""
    frame = table.frame
    if not table.typed:
        for name in features:
            _reject_text_among_numbers(table, name, index)
    columns = {name: frame[name] for name in features}
    raw = read_columns(columns, where=table.where, index=index, n_rows=len(frame), dates=dates)
    raw = to_transform(raw, checked_transform(transform, list(columns), table.where), where=table.where)
    labels = {}
    for task in tasks:
        if found[task.name]:
            labels[task.name] = read_labels(task, _labels_of(table, task, found[task.name]), len(frame), index=index)
            _report_doubtful(table, task, labels[task.name])
    for name in split.columns.values():
        find_column(name, list(frame.columns), table.where)
    keys = {role: read_key(role, frame[name], name, index.row_name) for role, name in split.columns.items()}
    if weights is not None:
        find_column(weights, list(frame.columns), table.where)
        keys[KEY] = read_weights(frame[weights], weights, index.row_name)
    return RawClient(raw, labels, keys=keys)


def _shared_out(everyone: RawClient, names: Sequence[str], member: np.ndarray) -> dict[str, RawClient]:
    """The rows of each client, in their order, by one sort for all clients."""
    order = np.argsort(member, kind="stable")
    starts = np.searchsorted(member[order], np.arange(len(names) + 1))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    features = everyone.features.take(order)
    keys = {role: values[order] for role, values in everyone.keys.items()}
    sorted_labels = {}
    for task, labels in everyone.labels.items():
        by_place = np.argsort(place[labels.at])
        at = place[labels.at][by_place]
        sorted_labels[task] = (at, labels.values[by_place], labels.vocabulary, np.searchsorted(at, starts))
    clients = {}
    for i, name in enumerate(names):
        part = slice(starts[i], starts[i + 1])
        texts = {column: values[part] for column, values in features.texts.items()}
        own = replace(features, numbers=features.numbers[part], texts=texts)
        labels = {}
        for task, (at, values, vocabulary, bounds) in sorted_labels.items():
            mine = slice(bounds[i], bounds[i + 1])
            labels[task] = _own_words(Labels(at[mine] - starts[i], values[mine], vocabulary))
        clients[name] = RawClient(own, labels, keys={role: values[part] for role, values in keys.items()})
    return clients


def _own_words(labels: Labels) -> Labels:
    """With a vocabulary of the classes that this client has, not those of its neighbours in the table."""
    if labels.vocabulary is None:
        return labels
    used, values = np.unique(labels.values, return_inverse=True)
    return Labels(labels.at, values.reshape(-1), tuple(labels.vocabulary[i] for i in used))


def _labels_of(table: Table, task: Task, columns: list[str]) -> Any:
    values: Any = table.frame[columns[0]]  # pandas' own types are too wide to be of help
    if task.form is LabelForm.PAIR:
        return table.frame[columns].to_numpy()
    if table.typed or not task.form.has_classes or values.dtype.kind != "O":
        return values
    if not values.map(lambda value: isinstance(value, str) or is_missing(value)).all():
        return values  # derived, or not from a file
    return as_labels(values, task.classes, lenient=table.missing is None)


def _report_doubtful(table: Table, task: Task, labels: Labels) -> None:
    """In a file nobody can see whether NA is a class, or an empty field one: what was made of it is said."""
    if table.typed or task.classes is not None or labels.vocabulary is None or table.missing == ():
        return
    doubtful = EMPTY if table.missing is not None else USUAL
    for position, label in enumerate(labels.vocabulary):
        if label in doubtful:
            n = int((labels.values == position).sum())
            markers = [*(EMPTY if table.missing is None else table.missing), label]
            warnings.warn(
                f"{table.where}: task {task.name!r}: {label!r} is taken for a class ({n} rows); if it means that there "
                f"is no label, say so with missing={markers} (--missing)",
                stacklevel=2,
            )


def _reject_text_among_numbers(table: Table, name: str, index: _Rows) -> None:
    """One slip of the pen turns a column of numbers in a CSV file into text, and each number into a category."""
    import pandas as pd

    values = table.frame[name].dropna()
    if len(values) == 0 or values.dtype.kind != "O" or not isinstance(values.iloc[0], str):
        return
    is_text = np.isnan(np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64))
    if 0 < is_text.sum() <= 0.1 * len(values):
        row = int(np.flatnonzero(table.frame[name].notna())[is_text.argmax()])
        raise DataError(
            f"{table.frame[name].iloc[row]!r} stands among numbers",
            where=f"{index.row_name(row)}, column {name!r}",
            remedy="correct it, leave it empty, or drop the column",
        )
