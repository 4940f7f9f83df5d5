"""Templates with everything they may show escaped, and what both pages carry with them.

>>> as_json({"name": "</script>"})
Markup('{"name":"\\\\u003c/script\\\\u003e"}')
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from polyfed.report.charts.base import Chart

PAGES = files("polyfed.report") / "pages"


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values).strip() + "\n"


def figures_of(charts: Iterable[Chart]) -> dict[str, Any]:
    """What the page's script needs: the figures of each chart by the option that shows them."""
    return {chart.id: chart.figures for chart in charts}


def as_json(value: Any) -> Markup:
    """JSON that may stand in a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _environment() -> Environment:
    def text(name: str) -> str:
        return (PAGES / name).read_text(encoding="utf-8")

    how = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    made = Environment(loader=FunctionLoader(text), **how)
    made.globals["asset"] = lambda name: Markup(text(name))  # a style sheet or a script of this package, as it is
    return made
