"""What is in a file of text: uncompressed, and how its fields are separated and its decimals written.

>>> separator_of("ward;age;weight, kg\\n")
';'
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?\s*")
FEW = 0.1  # the share of texts among numbers that is rather a slip of the pen
_EITHER = re.compile(r"\s*[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?\s*")


def content_of(path: Path) -> bytes:
    """The bytes of a file, uncompressed if its name says that it is compressed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror}", remedy="check its permissions") from None
    if (ending := path.suffix.lower()) not in COMPRESSIONS:
        for magic, compression in _MAGIC.items():
            if content.startswith(magic):
                raise DataError("is compressed", remedy=f"let its name end in {ending}{compression}")
        return content
    try:
        if ending != ".zst":
            return {".gz": gzip, ".bz2": bz2, ".xz": lzma}[ending].decompress(content)
        import pyarrow as pa

        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            return stream.read()
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        what = f"cannot be uncompressed: {' '.join(str(error).split()).rstrip('.')}"
        raise DataError(what, remedy="compress the file anew") from None


def separator_of(header: str, ending: str = ".csv") -> str:
    """What separates the fields of a header: of comma, semicolon, tab and bar the most frequent; of equals the first."""
    outside = re.sub(r'"[^"]*"', "", header)
    usual = "\t,;|" if ending.startswith(".tsv") else ",;\t|"
    return max(usual, key=outside.count)


def with_decimal_commas(
    frame: pd.DataFrame, written: Collection[str], place: Callable[[int, str], str]
) -> pd.DataFrame:
    """Where fields are not separated by commas, a comma may begin decimals, and then a point separates thousands.

    >>> import pandas as pd
    >>> with_decimal_commas(pd.DataFrame({"x": ["1.234,5", "7", None]}), [], "{} of {}".format)["x"].tolist()
    [1234.5, 7.0, nan]
    """
    columns = {str(name): values for name, values in frame.items()}
    texts = [name for name, values in columns.items() if name not in written and _all_texts(values)]
    if not any(_has_decimal_commas(columns[name]) for name in texts):
        return frame
    frame = frame.copy()
    for name, values in columns.items():
        row = None
        if name in texts and _match(values, _COMMA).all():
            plain = values.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            frame[name] = plain.astype(float)
        elif name in texts:
            row = _odd_one(values)
        elif values.dtype.kind == "f" and name not in written:  # 1.234 may be a thousand or one and a bit
            decimals = values.to_numpy() % 1 > 0
            row = int(decimals.argmax()) if decimals.any() else None
        if row is not None:
            value, where = str(values.iloc[row]), place(row, name)
            if not value.replace(".", "", 1).strip().lstrip("+-").isdecimal():
                raise among_numbers(value, where)
            what = f"{value} has a decimal point, but other numbers of the file have decimal commas"
            raise DataError(what, where=where, remedy="write all of them in one way")
    return frame


def among_numbers(value: object, where: str) -> DataError:
    remedy = "correct it, leave it empty, or drop the column"
    return DataError(f"{value!r} stands among numbers", where=where, remedy=remedy)


def _has_decimal_commas(values: pd.Series) -> bool:
    """Whether nearly all texts of a column are numbers, some of them with a decimal comma."""
    has_commas = values.dropna().str.contains(",", regex=False).any()
    return bool(has_commas and (_match(values, _EITHER).all() or _match(values, _COMMA).mean() >= 1 - FEW))


def _odd_one(values: pd.Series) -> int | None:
    """In a file with decimal commas, the position of a text among numbers with commas, or of a decimal point; else None."""
    fits = _match(values, _COMMA)
    wrong = len(fits) - int(fits.sum())
    if not _match(values, _EITHER).all() and not (fits.any() and wrong <= FEW * len(fits)):
        return None
    present = values.notna().to_numpy().nonzero()[0]
    return int(present[(~fits).argmax()])


def _all_texts(values: pd.Series) -> bool:
    present = values.dropna()
    return present.dtype.kind == "O" and len(present) > 0 and bool(present.map(lambda one: isinstance(one, str)).all())


def _match(values: pd.Series, form: re.Pattern[str]) -> np.ndarray:
    """For each value that is there, whether it is of this form."""
    return values.dropna().map(lambda text: form.fullmatch(text) is not None).to_numpy(dtype=bool)
