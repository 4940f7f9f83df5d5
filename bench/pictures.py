"""Pictures of results that are drawn from the tables of their pages, so that both always show the same rows.

python -m bench.pictures [--folder docs/results]

A page whose rows were run at different times (`polyfed reproduce --beside`) has no folder of runs to draw from.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.paper.beside import CELL, TABLE

from .tables.picture import COLOURS, DASHES, OURS

PUBLISHED = "published"


@dataclass(frozen=True)
class Column:
    """One column of a table: methods, values and their standard deviations (NaN where a cell has none)."""

    table: str
    heading: str
    methods: list[str]
    values: list[float]
    stds: list[float]
    published: list[float] | None = None


def columns(page: str) -> Iterator[Column]:
    """All columns of numbers on a page; a column of published figures belongs to the one before it.

    >>> page = "**celeba**\\n\\n| method | MSE | published |\\n|:--|--:|--:|\\n| fedavg | 0.5 ± 0.1 (2) | 0.6 |\\n"
    >>> next(columns(page))
    Column(table='celeba', heading='MSE', methods=['fedavg'], values=[0.5], stds=[0.1], published=[0.6])
    """
    for found in TABLE.finditer(page):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found["lines"].strip().split("\n")]
        headings, rows = lines[0], lines[2:]
        for i, heading in enumerate(headings[1:], start=1):
            if heading in (PUBLISHED, "mean rank"):
                continue
            cells = [_numbers(row[i]) for row in rows]
            beside = None
            if headings[i + 1 : i + 2] == [PUBLISHED]:
                beside = [_numbers(row[i + 1])[0] for row in rows]
            methods = [row[0] for row in rows]
            yield Column(found["title"], heading, methods, [v for v, _ in cells], [s for _, s in cells], beside)


def _numbers(cell: str) -> tuple[float, float]:
    found = CELL.match(cell)
    if found is None:
        return math.nan, math.nan
    return float(found["value"]), float(found["std"].removeprefix(" ± ")) if found["std"] else math.nan


def points(page: str, wanted: Callable[[Column], bool], across: int) -> Any:
    """A panel for each column: its methods side by side."""
    shown = [column for column in columns(page) if wanted(column)]
    down = math.ceil(len(shown) / across)
    figure = new_figure(3.6 * across, 3.0 * down)
    for i, column in enumerate(shown):
        axes = figure.add_subplot(down, across, i + 1)
        at = range(len(column.methods))
        errors = [0.0 if math.isnan(std) else std for std in column.stds]
        axes.errorbar(at, column.values, errors, fmt="o", color=COLOURS[0], capsize=2, label="here")
        if column.published is not None:
            axes.plot(at, column.published, "D", mfc="none", color=COLOURS[1], label=PUBLISHED)
        axes.set_xticks(at, column.methods, rotation=45, ha="right", fontsize=8)
        axes.set_title(f"{column.table}, {column.heading}", fontsize=9)
        axes.grid(alpha=0.3)
    if any(column.published is not None for column in shown):
        figure.axes[0].legend(fontsize=7)
    return figure


def by_round(page: str) -> Any:
    """A panel for each table, a line for each method."""
    shown = list(columns(page))
    tables = dict.fromkeys(column.table for column in shown)
    figure = new_figure(11, 4.2 * len(tables))
    for i, table in enumerate(tables):
        axes = figure.add_subplot(len(tables), 1, i + 1)
        here = [column for column in shown if column.table == table]
        rounds = [int(column.heading.removeprefix("round ")) for column in here]
        for j, method in enumerate(here[0].methods):
            style = {"color": COLOURS[j % len(COLOURS)], "linestyle": DASHES[j // len(COLOURS)]}
            values = [column.values[column.methods.index(method)] for column in here]
            stds = [column.stds[column.methods.index(method)] for column in here]
            axes.errorbar(rounds, values, stds, lw=2.5 if method == OURS else 1.2, capsize=2, label=method, **style)
        axes.set_title(table, fontsize=10)
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8, ncols=2, loc="lower right")
    return figure


def new_figure(width: float, height: float) -> Any:
    """Without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


DRAWN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "table1": ("table1", lambda page: points(page, lambda c: "x" in c.heading.split(" ")[0], across=3)),
    "trained": ("trained", lambda page: points(page, lambda c: True, across=4)),
    "convergence": ("convergence", by_round),
    "calibration_scores": ("calibration", lambda page: points(page, lambda c: True, across=3)),
    "ood_auroc": ("ood", lambda page: points(page, lambda c: c.heading.endswith("AUROC"), across=3)),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pictures")
    parser.add_argument("--folder", type=Path, default=Path("docs/results"))
    folder = parser.parse_args().folder
    for name, (page, draw) in DRAWN.items():
        figure = draw((folder / f"{page}.md").read_text(encoding="utf-8"))
        figure.savefig(folder / f"{name}.png", dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main()
