"""Columns that number or name the rows: they tell a model nothing, and a person's name much.

>>> import pandas as pd
>>> rows = pd.Series(range(30), name="row_id")
>>> why_identifier(rows), why_identifier(rows.rename("age"))
('different in every row, named like a number of the row', None)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfed.data.features.dates import are_dates
from polyfed.data.tables.client_column import words_of

_WORDS = {"id", "index", "number", "nr", "no", "key", "uuid", "guid", "rownames", "rowname", "unnamed", "row"}
NEARLY = 0.95  # the share of different values
FEWEST = 20  # values; among fewer, nobody can tell


def why_identifier(values: Any) -> str | None:
    """Why a column is taken for an identifier of rows; None if it is not."""
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


def is_named_like_one(name: Any) -> bool:
    """Whether a name says that it numbers things: row_id, patientID, nr."""
    return bool(_WORDS & set(words_of(str(name)))) or str(name).lower().endswith("id")


def left_out(frames: Sequence[Any], columns: Sequence[str]) -> dict[str, str]:
    """Those of the columns that are identifiers, in all tables together, and why; never all of them."""
    import pandas as pd

    found = {}
    for name in columns:
        held = [frame[name] for frame in frames if name in frame.columns]
        why = why_identifier(held[0] if len(held) == 1 else pd.concat(held, ignore_index=True)) if held else None
        if why is not None:
            found[name] = why
    return found if len(found) < len(columns) else {}
