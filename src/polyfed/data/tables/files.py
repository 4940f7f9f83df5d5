"""Files of tables, read so that every error can say which file and which line it speaks of.

>>> load_table("hospitals.csv")
Traceback (most recent call last):
polyfed.errors.DataError: hospitals.csv: there is no such file; correct the path.
"""

from __future__ import annotations

import glob
import io
import os
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.features.matrix import at, reject_duplicates, row_name
from polyfed.data.labels.written import EMPTY, USUAL
from polyfed.data.tables.columns import find_column
from polyfed.data.tables.servers import DUCKDB, SQLITE, is_database, is_url, read_query, read_server, url_name
from polyfed.data.tables.text import COMPRESSIONS, content_of, separator_of, with_decimal_commas
from polyfed.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

TEXTS = tuple(f"{text}{packed}" for text in (".csv", ".tsv") for packed in ("", *COMPRESSIONS))
SUFFIXES = (*TEXTS, ".parquet", ".feather", ".xlsx", *SQLITE, *DUCKDB)
_GIVE = "give a .csv, .tsv (also .gz, .bz2, .xz, .zst), .parquet, .feather, .xlsx, .sqlite or .duckdb file"


def is_table_file(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def stem_of(source: str | Path) -> str:
    """The name of a file without what says that it is a table, or of a database.

    >>> stem_of(Path("data/basel.csv.gz")), stem_of(Path("data/*.csv"))
    ('basel', 'data')
    """
    if is_url(source):
        return url_name(str(source))
    path = Path(source)
    if glob.has_magic(path.name) and not path.exists():
        return next(
            (part for part in reversed(path.parts[:-1]) if part not in ("/", "..") and not glob.has_magic(part)), "data"
        )
    ending = next((ending for ending in SUFFIXES if path.name.lower().endswith(ending)), path.suffix)
    return path.name[: -len(ending)] if ending and len(path.name) > len(ending) else path.stem


@dataclass(frozen=True, eq=False)
class Table:
    """A table with text column names."""

    frame: pd.DataFrame
    where: str  # what errors call it
    row_name: Callable[[int], str]  # what errors call the row at a position
    typed: bool = True  # whether it says itself which columns are numbers (a CSV file does not)
    missing: tuple[str, ...] | None = None  # texts that a user said to mean no value; None if nothing was said

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    def column(self, name: str) -> Any:  # pandas' own types are too wide to be of help
        """A column, or an error with the nearest name."""
        find_column(name, self.columns, self.where)
        return self.frame[name]


def is_table_source(data: Any) -> bool:
    """Whether `load_table` is the one to read it: a DataFrame, a path, or what it made of one."""
    return isinstance(data, (Table, str, os.PathLike)) or (hasattr(data, "iloc") and hasattr(data, "columns"))


def matching_files(source: str | os.PathLike[str]) -> list[Path] | None:
    """The files that a pattern such as data/*.csv matches, sorted; None if it is no pattern, or the name of something."""
    if is_url(source) or not glob.has_magic(str(source)) or Path(source).exists():
        return None
    found = sorted(glob.glob(str(source), recursive=True))  # noqa: PTH207, a pattern may begin anywhere
    files = [path for path in map(Path, found) if is_table_file(path)]
    if not files:
        raise DataError("no table matches", where=str(source), remedy="correct the pattern")
    return files


def load_table(
    source: Any, *, written: Collection[str] = (), missing: tuple[str, ...] | None = None, query: str | None = None
) -> Table:
    """A DataFrame as it is, or the table in a file (SUFFIXES), or in all files that a pattern matches, one below the other.

    Columns in `written` (class labels, names of clients) are kept as they stand in a CSV file, whatever they look like;
    there the texts in `missing` mean that there is no value, by default an empty field alone. In other columns the usual
    markers do, too. A table with types of its own has gaps of its own; there only what is in `missing` is a further one.
    `query` says what is read from a database.
    """
    if isinstance(source, Table):
        return source
    if not isinstance(source, (str, os.PathLike)):
        if not is_table_source(source):
            raise DataError(f"is a {type(source).__name__}", where="table", remedy="give a DataFrame or a path")
        return _checked(Table(source, "table", lambda row: row_name(row, source.index)), missing)
    if is_url(source):
        url = str(source)
        return _checked(Table(read_server(url, query), url, lambda row: f"row {row} of {url}"), missing)
    if (files := matching_files(source)) is not None:
        tables = [load_table(path, written=written, missing=missing, query=query) for path in files]
        return _stacked(tables, str(source))
    path = Path(source)
    if query is not None and path.is_file() and is_table_file(path) and not is_database(path):
        raise ConfigError(f"query is given, but {path.name} is no database", remedy="leave it out, or give a database")
    with at(str(path)):
        if not path.is_file():
            raise DataError("is a folder" if path.is_dir() else "there is no such file", remedy="correct the path")
        if not is_table_file(path):
            raise DataError("is not a kind of table that can be read", remedy=_GIVE)
        if path.name.lower().endswith(TEXTS):
            return _checked(_load_csv(path, written, missing), missing)
        return _checked(_load_typed(path, query), missing)


def _stacked(tables: Sequence[Table], where: str) -> Table:
    """The rows of all tables, one below the other; all of them must have the same columns."""
    import pandas as pd

    first = list(tables[0].frame.columns)
    for table in tables[1:]:
        if odd := sorted(set(first) ^ set(table.frame.columns)):
            lacking, having = (table, tables[0]) if odd[0] in first else (tables[0], table)
            what = f"lacks column {odd[0]!r}, which {having.where} has"
            raise DataError(what, where=lacking.where, remedy="give all files the same columns")
    if len({table.typed for table in tables}) > 1:
        raise DataError("matches files of text and others", where=where, remedy="choose files of one kind")
    starts = np.cumsum([0, *(len(table.frame) for table in tables)])

    def row_name(row: int) -> str:
        at = int(np.searchsorted(starts, row, side="right")) - 1
        return tables[at].row_name(row - int(starts[at]))

    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    return Table(frame, where, row_name, tables[0].typed, tables[0].missing)


def _load_csv(path: Path, written: Collection[str], missing: tuple[str, ...] | None) -> Table:
    import pandas as pd

    content = content_of(path)
    try:
        first_line = content.partition(b"\n")[0].decode()
        separator = separator_of(first_line, "".join(path.suffixes[-2:]).lower())
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields without a heading would be dropped
            # Blank lines are kept for now, so that the position of a row gives its line.
            read = partial(pd.read_csv, sep=separator, keep_default_na=False, skip_blank_lines=False)
            header = read(io.BytesIO(content), nrows=1, header=None, dtype=str)
            headings = [str(name).removeprefix("\ufeff") for name in header.iloc[0]]
            marks = dict.fromkeys(headings, USUAL if missing is None else (*USUAL, *missing))
            marks |= {name: EMPTY if missing is None else missing for name in headings if name in written}
            frame = read(
                io.BytesIO(content),
                index_col=False,
                low_memory=False,
                na_values={name: list(texts) for name, texts in marks.items()},
                dtype={name: object for name in headings if name in written},
            )
    except pd.errors.EmptyDataError:
        raise DataError("has no header", remedy="begin the file with the names of columns") from None
    except UnicodeDecodeError:
        raise _not_utf8(content, path) from None
    except pd.errors.ParserWarning:
        raise DataError("has rows longer than its header", remedy="name every column") from None
    except ValueError as error:  # the parser's own among them
        what = f"cannot be read as CSV: {' '.join(str(error).split()).split('C error: ')[-1].rstrip('.')}"
        raise DataError(what, remedy="correct the line, and quote fields that contain commas") from None
    if "" in (stripped := [name.strip() for name in headings]):
        what = f"column {stripped.index('')} has no name in the first line"
        raise DataError(what, remedy="begin the file with a header that names every column")
    reject_duplicates(headings, str(path))  # pandas would rename them in silence
    lines = _line_of_each_row(frame)
    filled = ~(frame.isna() | (frame == "")).all(axis=1).to_numpy()
    frame, lines = frame.loc[filled], lines[filled]
    if separator != ",":
        place = "line {} of {}, column {!r}".format
        frame = with_decimal_commas(frame, written, lambda row, name: place(lines[row], path.name, name))
    return Table(frame, str(path), lambda row: f"line {lines[row]} of {path.name}", typed=False, missing=missing)


def _not_utf8(content: bytes, path: Path) -> DataError:
    try:
        content.decode()
        line = 1
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
    return DataError("is not UTF-8 text", where=f"line {line} of {path}", remedy="save the file in UTF-8")


def _line_of_each_row(frame: pd.DataFrame) -> np.ndarray:
    """Line numbers in the file: the header is line 1, and a quoted field may go over several lines."""
    breaks = np.zeros(len(frame), dtype=np.int64)
    for name in frame.columns[[frame[name].dtype.kind == "O" for name in frame.columns]]:
        breaks += frame[name].astype(str).str.count("\n").fillna(0).to_numpy(dtype=np.int64)
    return 2 + np.arange(len(frame)) + np.cumsum(breaks) - breaks


def _load_typed(path: Path, query: str | None) -> Table:
    """A table that says which columns are numbers."""
    import pandas as pd

    ending = path.suffix.lower()
    if is_database(path):
        return Table(read_query(path, query), str(path), lambda row: f"row {row} of {path.name}")
    kind, need, package, read = {
        ".parquet": ("Parquet", "pyarrow", "pyarrow", pd.read_parquet),
        ".feather": ("Feather", "pyarrow", "pyarrow", pd.read_feather),
        ".xlsx": ("Excel", "openpyxl", "'polyfed[tables]'", _first_sheet),
    }[ending]
    try:
        frame = read(path)
    except ImportError:
        raise MissingExtraError(f"{kind} files need {need}", remedy=f"pip install {package}") from None
    except Exception as error:  # pyarrow's and openpyxl's errors have no common base that pandas shows
        what = f"cannot be read as {kind}: {' '.join(str(error).split()).rstrip('.')}"
        raise DataError(what, remedy="write the file anew") from None
    first = 2 if ending == ".xlsx" else 0  # the header of a sheet is its row 1
    return Table(frame, str(path), lambda row: f"row {row + first} of {path.name}")


def _first_sheet(path: Path) -> pd.DataFrame:
    import pandas as pd

    with pd.ExcelFile(path, engine="openpyxl") as book:
        if (n := len(book.sheet_names)) > 1:
            warnings.warn(f"{path}: has {n} sheets; the first, {book.sheet_names[0]!r}, is read", stacklevel=2)
        return pd.read_excel(book, sheet_name=0)


def _checked(table: Table, missing: tuple[str, ...] | None) -> Table:
    """With texts as names of columns, and without the texts that mean nothing (in a CSV file they have gone already)."""
    if len(table.frame) == 0:
        raise DataError("has no rows", where=table.where, remedy="give at least one")
    names = [str(name) for name in table.frame.columns]
    reject_duplicates(names, table.where)
    frame, gaps = table.frame.set_axis(names, axis=1), missing or ()
    for name in names if table.typed and gaps else ():
        if frame[name].dtype.kind == "O":
            marked = np.array([isinstance(value, str) and value in gaps for value in frame[name]])
            if marked.any():
                frame[name] = frame[name].astype(object).mask(marked, None)
    return replace(table, frame=frame, missing=missing)
