"""Tables of users become clients: which column says whose row it is, which are tasks, which are features.

>>> import pandas as pd
>>> table = pd.DataFrame({"ward": ["b", "a", "b"], "age": [50, 60, 70], "pulse": [80, None, 60]})
>>> clients = TableReader([Task("pulse")]).clients(table, client="ward")
>>> list(clients), clients["b"].features.numbers.tolist(), clients["b"].labels["pulse"].values
(['a', 'b'], [[50.0], [70.0]], array([80., 60.]))
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.features.dates import date_of
from polyfed.data.features.matrix import is_missing
from polyfed.data.features.raw import dates_among, read_columns
from polyfed.data.features.transforms import checked_transform, to_transform
from polyfed.data.labels.codec import KEY, read_weights
from polyfed.data.labels.column import Labels
from polyfed.data.labels.written import EMPTY, USUAL, as_labels, checked_missing
from polyfed.data.raw import RawClient, at_client, read_labels
from polyfed.data.splits import DEFAULT_SPLIT, Split, read_key
from polyfed.data.tables.client_column import client_names, reject_one_row_clients
from polyfed.data.tables.columns import (
    as_names,
    feature_columns,
    find_column,
    task_columns,
    without_identifiers,
    written_columns,
)
from polyfed.data.tables.derived import comparisons, with_derived
from polyfed.data.tables.files import Table, is_table_file, load_table, matching_files, stem_of
from polyfed.data.tables.servers import is_database
from polyfed.data.tables.text import among_numbers
from polyfed.data.task import Task
from polyfed.errors import ConfigError, DataError
from polyfed.kinds import LabelForm


class TableReader:
    """What users say of a table's columns (`Federation.from_table`), and how clients are read by it."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        derive: Mapping[str, str] | None = None,
        missing: Sequence[str] | None = None,
        split: Split = DEFAULT_SPLIT,
        transform: Mapping[str, str] | None = None,
        weights: str | None = None,
    ) -> None:
        self.tasks, self.split, self.transform, self.weights = tasks, split, transform, weights
        self.features, self.derived, self.missing = as_names(features), comparisons(derive), checked_missing(missing)
        # A time may be an input; whose row it is or to which part it belongs is no information about other rows.
        no_input = [split.columns[role] for role in ("group", "column") if role in split.columns]
        no_input += [] if weights is None else [weights]
        # The column that a task is derived from would give its labels away.
        names = {task.name for task in tasks}
        no_input += [d.column for d in self.derived if d.name in names and d.column not in (self.features or ())]
        self.drop: list[str] = list(dict.fromkeys([*(as_names(drop) or []), *no_input]))

    def clients(self, source: object, *, client: str | None = None, query: str | None = None) -> dict[str, RawClient]:
        """All clients of a table, or of a folder (or a pattern) with one file for each client."""
        if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
            if client is not None:
                what = f"client={client!r}, but in a folder the names of the files are the clients"
                raise ConfigError(what, where=str(source), remedy="leave client out")
            files = [path for path in sorted(Path(source).iterdir()) if is_table_file(path) and not is_database(path)]
            return self._folder(files, str(source))
        if client is None and isinstance(source, (str, os.PathLike)) and (files := matching_files(source)) is not None:
            return self._folder(files, str(source))
        table = with_derived(self._load(source, client, query), self.derived)
        columns = table.columns
        if client is None:
            what = "which column says whose row it is?"
            raise ConfigError(what, where=table.where, remedy=f"give client=..., one of {columns}")
        names = client_names(table, client)
        found = {task.name: task_columns(task, columns, table.where) for task in self.tasks}
        predicted = [name for own in found.values() for name in own]
        for role, taken in (("predicted", predicted), ("a feature", self.features or ())):
            if client in taken:
                what = f"column {client!r} says whose row it is and cannot be {role}"
                raise ConfigError(what, where=table.where, remedy="leave it out")
        if self.split.test or self.split.validation:
            reject_one_row_clients(table.frame, client, names, table.where)
        chosen = feature_columns(columns, found, self.features, [*self.drop, client], table.where)
        if self.features is None:
            chosen = without_identifiers([table.frame], chosen, table.where)
        members, member = np.unique(names, return_inverse=True)
        named = replace(table, row_name=lambda row: f"{table.row_name(row)} (client {str(names[row])!r})")
        return _shared_out(self._rows(named, found, chosen), members.tolist(), member)

    def own(self, source: str | Path, *, name: str | None = None, client: str | None = None) -> tuple[str, RawClient]:
        """A client that brings its own file: its name (as given, as the column `client` says, or as the file is called)
        and its data. What others have it cannot know: a task or a column to drop that its file lacks is passed over."""
        table, drop = with_derived(self._load(source, client), self.derived, partly=True), self.drop
        if client is not None and client in table.columns:
            found = sorted(set(client_names(table, client)))
            if len(found) > 1:
                what = f"column {client!r} names {len(found)} clients"
                raise DataError(what, where=table.where, remedy="give each client a file of its own")
            name, drop = name or str(found[0]), [*drop, client]
        name = name or stem_of(Path(source))
        with at_client(name):
            return name, self._file(table, drop)

    def _load(self, source: object, client: str | None = None, query: str | None = None) -> Table:
        return load_table(source, written=written_columns(self.tasks, client), missing=self.missing, query=query)

    def _folder(self, files: Sequence[Path], folder: str) -> dict[str, RawClient]:
        if not files:
            what = "has no table in it"
            raise DataError(what, where=folder, remedy="put one .csv, .csv.gz or .parquet file for each client there")
        tables: dict[str, Table] = {}
        for path in files:
            name = stem_of(path)
            if name in tables:
                raise DataError(f"two files are of client {name!r}", where=folder, remedy="keep one of them")
            with at_client(name):
                tables[name] = with_derived(self._load(path), self.derived, partly=True)
        all_columns = list(dict.fromkeys(column for table in tables.values() for column in table.columns))
        drop = self.drop
        if self.features is None:
            free = [column for column in all_columns if column not in (*drop, *(task.name for task in self.tasks))]
            kept = without_identifiers([table.frame for table in tables.values()], free, folder)
            drop = [*drop, *(column for column in free if column not in kept)]
        clients: dict[str, RawClient] = {}
        for name, table in tables.items():
            with at_client(name):
                clients[name] = self._file(table, drop)
        for task in self.tasks:  # a client may lack a task, but not all of them
            task_columns(task, all_columns, folder)
        for name in drop:
            find_column(name, all_columns, folder)
        return clients

    def _file(self, table: Table, drop: Sequence[str]) -> RawClient:
        """All rows of a table that is one client's; it may lack some tasks, and columns that are to be dropped."""
        columns = table.columns
        found = {task.name: task_columns(task, columns, None) for task in self.tasks}
        there = [name for name in drop if name in columns]
        return self._rows(table, found, feature_columns(columns, found, self.features, there, table.where))

    def _rows(
        self, table: Table, found: dict[str, list[str]], features: Sequence[str], dates: Sequence[str] = ()
    ) -> RawClient:
        """All rows of the table as if they were one client's, with the columns by which `split` divides them."""
        frame = table.frame
        if not table.typed:
            for name in features:
                _reject_text_among_numbers(table, name)
        columns = {name: frame[name] for name in features}
        raw = read_columns(columns, where=table.where, place=table.row_name, n_rows=len(frame), dates=dates)
        raw = to_transform(raw, checked_transform(self.transform, list(columns), table.where), where=table.where)
        labels = {}
        for task in self.tasks:
            if own := found[task.name]:
                labels[task.name] = read_labels(task, _labels_of(table, task, own), len(frame), table.row_name)
                _report_doubtful(table, task, labels[task.name])
        by = self.split.columns.items()
        keys = {role: read_key(role, table.column(name), name, table.row_name) for role, name in by}
        if self.weights is not None:
            keys[KEY] = read_weights(table.column(self.weights), self.weights, table.row_name)
        return RawClient(raw, labels, keys=keys)


def read_client_table(name: str, source: object, tasks: Sequence[Task], features: Sequence[str]) -> RawClient:
    """One client that joins: a table with these features and the columns of the tasks that it has."""
    with at_client(name):
        table = load_table(source, written=written_columns(tasks))
        columns = table.columns
        found = {task.name: task_columns(task, columns, None) for task in tasks}
        dates = dates_among(features, columns)
        chosen = [name for name in features if date_of(name) not in dates or name in columns]
        for feature in chosen:
            find_column(feature, columns, table.where)
        return TableReader(tasks)._rows(table, found, [*chosen, *dates], dates)


def _shared_out(everyone: RawClient, names: Sequence[str], member: np.ndarray) -> dict[str, RawClient]:
    """The rows of each client, in their order, by one sort for all clients."""
    order = np.argsort(member, kind="stable")
    starts = np.searchsorted(member[order], np.arange(len(names) + 1))
    together, sorted_labels = everyone.take(order), {}
    for task, own in together.labels.items():
        by_place = np.argsort(own.at)
        at = own.at[by_place]
        sorted_labels[task] = (at, own.values[by_place], own.vocabulary, np.searchsorted(at, starts))
    clients = {}
    for i, name in enumerate(names):
        part, labels = slice(starts[i], starts[i + 1]), {}
        for task, (at, values, vocabulary, bounds) in sorted_labels.items():
            mine = slice(bounds[i], bounds[i + 1])
            own = Labels(at[mine] - starts[i], values[mine], vocabulary)
            if vocabulary is not None:  # of the classes that this client has, not those of its neighbours in the table
                used, own_values = np.unique(own.values, return_inverse=True)
                own = Labels(own.at, own_values.reshape(-1), tuple(vocabulary[k] for k in used))
            labels[task] = own
        keys = {role: values[part] for role, values in together.keys.items()}
        clients[name] = RawClient(together.features.take(part), labels, keys=keys)
    return clients


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
            remedy = f"if it means that there is no label, say so with missing={markers} (--missing)"
            what = f"task {task.name!r}: {label!r} is taken for a class ({n} rows); {remedy}"
            warnings.warn(f"{table.where}: {what}", stacklevel=2)


def _reject_text_among_numbers(table: Table, name: str) -> None:
    """One slip of the pen turns a column of numbers in a CSV file into text, and each number into a category."""
    import pandas as pd

    values = table.frame[name].dropna()
    if len(values) == 0 or values.dtype.kind != "O" or not isinstance(values.iloc[0], str):
        return
    is_text = np.isnan(np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64))
    if 0 < is_text.sum() <= 0.1 * len(values):
        row = int(np.flatnonzero(table.frame[name].notna())[is_text.argmax()])
        raise among_numbers(table.frame[name].iloc[row], f"{table.row_name(row)}, column {name!r}")
