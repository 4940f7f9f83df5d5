"""The page of a reproduced experiment: its tables beside the published figures, its pictures, and what was different."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from polyfed.report.charts import Chart
from polyfed.report.charts.base import Figure
from polyfed.report.templates import PAGES, as_json, figures_of, render


def reproduction_html(
    *,
    title: str,
    says: str,
    facts: Sequence[str],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    claims: Sequence[tuple[str, str]],
    differences: Sequence[str],
    charts: Sequence[Chart],
) -> str:
    """The page as text. A table is a title, headings and rows; a claim is what was published and whether it is so here."""
    return render(
        "reproduction.html",
        title=title,
        says=says,
        facts=facts,
        tables=tables,
        claims=claims,
        differences=differences,
        charts=charts,
        figures=as_json(figures_of(charts)),
    )


def coloured(figure: Figure) -> Figure:
    """A figure with the colours of the light theme instead of their names, for programs that do not know the page.

    >>> coloured({"data": [{"marker": {"color": "--green"}}]})
    {'data': [{'marker': {'color': '#23835f'}}]}
    """
    return _replaced(figure)


def _replaced(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner) for inner in value]
    return _colours().get(value, value) if isinstance(value, str) else value


@cache
def _colours() -> dict[str, str]:
    style = (PAGES / "style.css").read_text(encoding="utf-8")
    light = style[: style.index("@media")]
    return dict(re.findall(r"(--[\w-]+): (#\w+);", light))
