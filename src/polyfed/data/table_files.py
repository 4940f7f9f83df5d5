"""Files of tables, read so that every error can say which file and which line it speaks of.

>>> load_table("hospitals.csv")
Traceback (most recent call last):
polyfed.errors.DataError: hospitals.csv: there is no such file; correct the path.
"""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.features import refuse_twins, row_name
from polyfed.data.written import EMPTY, USUAL
from polyfed.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_GIVE = "give a .csv, .csv.gz or .parquet file"


def is_table_file(path: Path) -> bool:
    """Whether the name of a file says that it is a table."""
    return path.name.lower().endswith(SUFFIXES)


def stem_of(path: Path) -> str:
    """The name of a file without what says that it is a table.

    >>> stem_of(Path("data/basel.csv.gz"))
    'basel'
    """
    ending = next((ending for ending in SUFFIXES if path.name.lower().endswith(ending)), path.suffix)
    return path.name[: -len(ending)] if ending and len(path.name) > len(ending) else path.stem


@dataclass(frozen=True, eq=False)
class Table:
    """A table with text column names.

    `where` is what errors call it, `row_name` says what they call the row at a position, `typed` is whether the
    table itself says which columns are numbers (a CSV file does not), `missing` are the texts that a user said to mean
    that there is no value, None if nothing was said.
    """

    frame: pd.DataFrame
    where: str
    row_name: Callable[[int], str]
    typed: bool = True
    missing: tuple[str, ...] | None = None


def is_table_source(data: Any) -> bool:
    """Whether `load_table` is the one to read it: a DataFrame, a path, or what it made of one."""
    return isinstance(data, (Table, str, os.PathLike)) or (hasattr(data, "iloc") and hasattr(data, "columns"))


def load_table(source: Any, *, written: Collection[str] = (), missing: tuple[str, ...] | None = None) -> Table:
    """A DataFrame as it is, or the table in a CSV (or compressed CSV) or Parquet file.

    Columns in `written` (class labels, names of clients) are kept as they stand in a CSV file, whatever they look like;
    there the texts in `missing` mean that there is no value, by default an empty field alone. In other columns the usual
    markers do, too. A table with types of its own has gaps of its own; there only what is in `missing` is a further one.
    """
    if isinstance(source, Table):
        return source
    if not isinstance(source, (str, os.PathLike)):
        if not is_table_source(source):
            raise DataError(f"is a {type(source).__name__}", where="table", remedy="give a DataFrame or a path")
        table = Table(source, "table", lambda row: row_name(row, source.index))
        return _checked(_with_gaps(table, missing))
    path = Path(source)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise DataError(what, where=str(path), remedy="correct the path")
    if not is_table_file(path):
        raise DataError("is not a kind of table that can be read", where=str(path), remedy=_GIVE)
    if path.suffix.lower() == ".parquet":
        return _checked(_with_gaps(_load_parquet(path), missing))
    return _checked(_load_csv(path, written, missing))


def _with_gaps(table: Table, missing: tuple[str, ...] | None) -> Table:
    """A table with types of its own, without the texts that mean nothing."""
    frame = table.frame
    for position in range(frame.shape[1] if missing else 0):
        column = frame.iloc[:, position]
        if getattr(column.dtype, "kind", "O") == "O":
            marked = column.map(lambda value: isinstance(value, str) and value in (missing or ())).astype(bool)
            if marked.any():
                frame = frame.copy(deep=False)
                frame.isetitem(position, column.astype(object).mask(marked.to_numpy(), None))
    return replace(table, frame=frame, missing=missing)


def _load_csv(path: Path, written: Collection[str], missing: tuple[str, ...] | None) -> Table:
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields without a heading would be dropped
            header = pd.read_csv(path, nrows=1, header=None, dtype=str, keep_default_na=False, skip_blank_lines=False)
            headings = [str(name).removeprefix("\ufeff") for name in header.iloc[0]]
            marks = dict.fromkeys(headings, USUAL if missing is None else (*USUAL, *missing))
            marks |= {name: EMPTY if missing is None else missing for name in headings if name in written}
            # Blank lines are kept for now, so that the position of a row tells its line.
            frame = pd.read_csv(
                path,
                skip_blank_lines=False,
                index_col=False,
                low_memory=False,
                keep_default_na=False,
                na_values={name: list(texts) for name, texts in marks.items()},
                dtype={name: object for name in headings if name in written},
            )
    except pd.errors.EmptyDataError:
        raise DataError("has no header", where=str(path), remedy="begin the file with the names of columns") from None
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except pd.errors.ParserWarning:
        raise DataError("has rows longer than its header", where=str(path), remedy="name every column") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = f"cannot be uncompressed: {' '.join(str(error).split()).rstrip('.')}"
        raise DataError(what, where=str(path), remedy="compress the file anew") from None
    except ValueError as error:  # the parser's own among them
        raise DataError(
            f"cannot be read as CSV: {' '.join(str(error).split()).split('C error: ')[-1].rstrip('.')}",
            where=str(path),
            remedy="correct the line, and quote fields that contain commas",
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot be opened: {error.strerror}", where=str(path), remedy="check its permissions"
        ) from None
    if len(headings) == 1 and (";" in headings[0] or "\t" in headings[0]):
        raise DataError(f"has one column, {headings[0]!r}", where=str(path), remedy="separate the fields by commas")
    if not all(name.strip() for name in headings):
        raise DataError(
            f"column {[name.strip() for name in headings].index('')} has no name in the first line",
            where=str(path),
            remedy="begin the file with a header that names every column",
        )
    refuse_twins(headings, str(path))  # pandas would rename them in silence
    lines = _line_of_each_row(frame)
    filled = ~(frame.isna() | (frame == "")).all(axis=1).to_numpy()
    frame, lines = frame.loc[filled], lines[filled]
    return Table(frame, str(path), lambda row: f"line {lines[row]} of {path.name}", typed=False, missing=missing)


def _not_utf8(path: Path) -> DataError:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        if path.suffix.lower() != ".gz":
            return DataError("is compressed", where=str(path), remedy="let its name end in .csv.gz")
        content = gzip.decompress(content)
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


def _load_parquet(path: Path) -> Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise MissingExtraError("Parquet files need pyarrow", where=str(path), remedy="pip install pyarrow") from None
    except Exception as error:  # pyarrow's errors have no common base that pandas shows
        raise DataError(
            f"cannot be read as Parquet: {' '.join(str(error).split()).rstrip('.')}",
            where=str(path),
            remedy="write the file anew",
        ) from None
    return Table(frame, str(path), lambda row: f"row {row} of {path.name}")


def _checked(table: Table) -> Table:
    if len(table.frame) == 0:
        raise DataError("has no rows", where=table.where, remedy="give at least one")
    names = [str(name) for name in table.frame.columns]
    refuse_twins(names, table.where)
    return replace(table, frame=table.frame.set_axis(names, axis=1))
