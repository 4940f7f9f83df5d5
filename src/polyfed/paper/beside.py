"""Rows of new runs in the tables of a page that was written before, whose runs need not be completed again.

Numbers and text of the page stay as they are; ranks make room, and what was run when is said at its end. Of two equal numbers,
as they are printed, both have the rank between.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from polyfed.errors import DataError, in_words
from polyfed.metrics import is_better
from polyfed.paper.tables import NAMES, Table

TABLE = re.compile(r"^\*\*(?P<title>[^*\n]+)\*\*\n\n(?P<lines>(?:\|.*\n?)+)", re.MULTILINE)
CELL = re.compile(r"^(?P<value>-?[\d.e+]+)(?P<std> ± [\d.e+-]+)?(?: \((?P<rank>[\d.]+)\))?$")
BETTER_HIGH = tuple(NAMES[metric] for metric in NAMES if is_better(metric, 1.0, 0.0))


def read_page(path: Path) -> str:
    """The page that rows are to be set beside."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "give a results.md of this preset"
        raise DataError(f"cannot be read ({in_words(error)})", where=path, remedy=remedy) from None


def with_rows(page: str, made: Sequence[Table], about: Sequence[str]) -> str:
    """The page with the rows of these tables in those of the same title, and with these lines at its end."""
    new = {table.title: table for table in made}
    known = [found["title"] for found in TABLE.finditer(page)]
    if absent := [title for title in new if title not in known]:
        remedy = "give the page of this preset"
        raise DataError(f"there is no table {absent[0]!r} in it", where="the page to set rows beside", remedy=remedy)

    def changed(found: re.Match[str]) -> str:
        title = found["title"]
        if title not in new:
            return found[0]
        lines = [line.strip().strip("|") for line in found["lines"].strip().split("\n")]
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        return _joined(Table(title, cells[0], cells[2:]), new[title]).markdown() + "\n"

    end = "\n".join(f"- {line}" for line in about)
    return TABLE.sub(changed, page).rstrip("\n") + (f"\n{end}\n" if end else "\n")


def _joined(page: Table, new: Table) -> Table:
    """Rows of `new` take the place of those of the same name, or follow them."""
    names = [row[0] for row in new.rows]
    kept = [row for row in page.rows if row[0] not in names]
    columns, ranks = [[*(row[0] for row in kept), *names]], []
    for i, heading in enumerate(page.headings[1:], start=1):
        if heading == "mean rank":
            continue
        at = new.headings.index(heading) if heading in new.headings and heading != "published" else None
        cells = [*(row[i] for row in kept), *("–" if at is None else row[at] for row in new.rows)]
        if at is not None:
            high = any(name in (heading, page.title) or name in f"{heading} {page.title}" for name in BETTER_HIGH)
            cells, ranked = _ranked(cells, len(kept), high)
            ranks.append(ranked)
        columns.append(cells)
    if page.headings[-1] == "mean rank":
        means = [[rank for rank in of_row if np.isfinite(rank)] for of_row in zip(*ranks, strict=True)]
        columns.append([f"{np.mean(found):.2f}" if found else "–" for found in means])
    return Table(page.title, page.headings, [list(row) for row in zip(*columns, strict=True)])


def _ranked(cells: Sequence[str], n_old: int, high: bool) -> tuple[list[str], list[float]]:
    """With ranks among all of them: the old ones keep their order, which knows more digits than are printed."""
    found = [CELL.match(cell) for cell in cells]
    sign = -1.0 if high else 1.0
    values = [np.nan if cell is None else sign * float(cell["value"]) for cell in found]
    printed = [float(cell["rank"]) if cell and cell["rank"] else np.nan for cell in found[:n_old]]
    ranks = [*stats.rankdata(printed, nan_policy="omit"), *[np.nan] * (len(cells) - n_old)]
    for i in range(n_old, len(cells)):
        others = [j for j in range(i) if np.isfinite(values[j])]
        if not np.isfinite(values[i]):
            continue
        ranks[i] = 1.0 + sum((values[j] < values[i]) + 0.5 * (values[j] == values[i]) for j in others)
        for j in others:
            ranks[j] += (values[j] > values[i]) + 0.5 * (values[j] == values[i])
    texts = [
        cell if match is None else f"{match['value']}{match['std'] or ''} ({rank:g})"
        for cell, match, rank in zip(cells, found, ranks, strict=True)
    ]
    return texts, ranks
