"""Templates with everything they may show escaped, what both pages carry with them, how metrics are written for people, and how
many digits are worth showing.

>>> decimals([0.1234, 0.4]), decimals([12.3, 8.0]), decimals([4120.0])
(3, 2, 0)
>>> as_json({"name": "</script>"})
Markup('{"name":"\\\\u003c/script\\\\u003e"}')
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from polyfed.kinds import KINDS

if TYPE_CHECKING:
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


def name_of(metric: str) -> str:
    """A metric as it is written for people.

    >>> name_of("rmse"), name_of("balanced_accuracy")
    ('RMSE', 'balanced accuracy')
    """
    if metric == "r2":
        return "R²"
    return metric.upper() if metric in ("mse", "rmse", "nlpd", "nll", "ece", "auroc") else metric.replace("_", " ")


def guess_of(kind: str) -> str:
    """What a model of a task of this kind is measured against.

    >>> guess_of("binary"), guess_of("count")
    ('majority class', 'mean')
    """
    return "majority class" if KINDS[kind].has_classes else "mean"


def decimals(values: Iterable[float]) -> int:
    """Digits after the point that show about three that matter of the largest value, the same for a whole column."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest >= 1000:
        return 0
    if largest == 0 or largest >= 0.1:
        return 3 - max(0, len(str(int(largest))) - 1)
    return 2 - math.floor(math.log10(largest))
