"""Records as tables of texts, and tables as Markdown.

>>> print(Table("Wards", ["method", "rmse"], [["local", "0.5"]]).markdown())
**Wards**
<BLANKLINE>
| method | rmse |
|:--|--:|
| local | 0.5 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.paper.records import Record

NAMES = {
    "mse": "MSE",
    "accuracy": "accuracy %",
    "ece": "ECE",
    "brier": "Brier",
    "nll": "NLL",
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "latent_mse": "MSE",
    "latent_variance": "variance",
    "latent_coverage": "coverage",
}


@dataclass(frozen=True)
class Table:
    """A title, the headings, and rows of texts; the first column names the row."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.headings, [":--", *["--:"] * (len(self.headings) - 1)], *self.rows]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        body[1] = body[1].replace(" ", "")
        return "\n".join([f"**{self.title}**", "", *body])


def tables(records: Sequence[Record]) -> list[Table]:
    """A table for each data set and group: methods or variants against settings, tasks and metrics.

    Of a case such as "masked, variance", the first half has a table of its own: more columns than that do not fit a page.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.data, record.group, record.case.partition(", ")[0]), []).append(record)
    return [_table(", ".join(filter(None, key)), found) for key, found in groups.items()]


def shown(record: Record | None) -> str:
    """The mean, its std and its rank.

    >>> shown(None)
    '–'
    """
    if record is None or not np.isfinite(record.mean):
        return "–"
    std = f" ± {number(record.std, record.metric)}" if record.std is not None else ""
    rank = f" ({record.rank:g})" if record.rank is not None else ""
    return f"{number(record.mean, record.metric)}{std}{rank}"


def number(value: float | None, metric: str) -> str:
    """
    >>> number(0.90764, "accuracy"), number(0.30149, "mse"), number(None, "mse")
    ('90.76', '0.301', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    if metric == "accuracy":
        return f"{100 * value:.2f}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def _table(title: str, records: Sequence[Record]) -> Table:
    columns = list(dict.fromkeys(map(_column, records)))
    settings = len({column[0] for column in columns})
    at = {(record.row, _column(record)): record for record in records}
    rows = list(dict.fromkeys(record.row for record in records))
    headings, beside = ["method"], {}
    for column in columns:
        setting, case, task, metric, round = column
        ambiguous = len({other[2] for other in columns if other[3] == metric}) > 1
        words = [setting if settings > 1 else "", case, task if ambiguous else "", NAMES[metric]]
        headings.append(" ".join(filter(None, words)) if round is None else f"round {round}")
        beside[column] = any(at[row, column].published is not None for row in rows if (row, column) in at)
        if beside[column]:
            headings.append("published")
    with_rank = len(columns) > 1 and columns[0][4] is None and any(record.rank is not None for record in records)
    lines = []
    for row in rows:
        line = [row]
        for column in columns:
            record = at.get((row, column))
            line.append(shown(record))
            if beside[column]:
                line.append(number(record.published if record else None, column[3]))
        if with_rank:
            ranks = [r.rank for c in columns if (r := at.get((row, c))) is not None and r.rank is not None]
            line.append(f"{np.mean(ranks):.2f}" if ranks else "–")
        lines.append(line)
    if records[0].round is not None:  # then the headings do not say what is in the columns
        title = f"{title}, {NAMES[records[0].metric]} by round"
    return Table(title, [*headings, *(["mean rank"] if with_rank else [])], lines)


def _column(record: Record) -> tuple[str, str, str, str, int | None]:
    return record.setting, record.case.partition(", ")[2], record.task, record.metric, record.round
