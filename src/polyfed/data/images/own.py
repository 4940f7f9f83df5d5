"""Images of one's own, listed in a CSV or Parquet file: a column of paths, a column of clients, and columns of labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.federation import Federation
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles
from polyfed.data.raw import RawClient
from polyfed.data.splits import DEFAULT_SPLIT
from polyfed.data.tables.columns import written_columns
from polyfed.data.tables.derived import Comparison
from polyfed.data.tables.files import Table, load_table
from polyfed.data.tables.reading import TableReader
from polyfed.data.task import as_tasks
from polyfed.errors import ConfigError, DataError


def own_images(
    table: str | Path | None = None,
    tasks: Any = None,
    path: str = "path",
    client: str = "client",
    test: str | None = None,
    derive: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
) -> ImageFederation:
    """Your own: a table with a column of paths, one of clients, and one for each task.

    Paths are relative to the table, or to `folder`. Tasks are given as in {"sick": "binary"}. `test` is a comparison
    that holds for test images, such as "part == 'test'"; without one, the split of the federation chooses test rows.
    """
    if table is None:
        what = "there is no table of images"
        raise ConfigError(what, where="data set 'images'", remedy="give table=..., a CSV or Parquet file")
    made = as_tasks(tasks or ())
    read = load_table(Path(table).expanduser(), written=written_columns(made, client))
    names = _paths(read, path)
    # Whose row it is and what its labels are is read as in any table, in which the one feature is the image's number.
    numbered = Table(read.frame.assign(**{path: np.arange(len(names))}), read.where, read.row_name, read.typed)
    raw = TableReader(made, features=[path], derive=derive).clients(numbered, client=client)
    if test is not None:
        is_test = Comparison.parse("test", test).of(read).fillna(False).to_numpy(dtype=bool)
        raw = {name: _with_own_test(name, one, is_test) for name, one in raw.items()}
    begin = Path(read.where).parent if folder is None else Path(folder).expanduser()
    return ImageFederation(
        ImageFiles(begin, names, read.row_name), Federation(made, dict(sorted(raw.items())), "federated", DEFAULT_SPLIT)
    )


def _paths(table: Table, column: str) -> np.ndarray:
    values = table.column(column).to_numpy(dtype=object)
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            what = f"{value!r} in column {column!r} is not a path"
            raise DataError(what, where=table.row_name(row), remedy="give the file's name, or drop the row")
    return values.astype(str)


def _with_own_test(name: str, raw: RawClient, is_test: np.ndarray) -> RawClient:
    own = is_test[raw.features.numbers[:, 0].astype(np.int64)]
    if not own.any():
        return raw
    if own.all():
        what = "has test images but no others"
        raise DataError(what, where=f"client {name!r}", remedy="leave it out, or let it train on some")
    return raw.take(np.flatnonzero(~own)).with_test(raw.take(np.flatnonzero(own)), where=f"client {name!r}")
