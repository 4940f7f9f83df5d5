"""What all charts share.

A colour is the name of a CSS variable, such as "--blue": the page looks it up when it draws, so that one figure serves
the light theme, the dark one and the printer.

>>> chart = Chart("loss", "Loss", "falls", {"": figure([line([1, 2], [0.5, 0.25], "loss", "--blue")], y="loss")})
>>> chart.figures[""]["data"][0]["y"]
[0.5, 0.25]
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Figure = dict[str, Any]
Entry = Mapping[str, Any]  # of results.json
Predictions = Mapping[str, Any]  # client → task → columns, as there

COLOURS = ("--blue", "--orange", "--green", "--purple", "--red", "--teal", "--gold", "--grey")
DOTTED = {"color": "--soft", "dash": "dot", "width": 1.5}  # a line to compare with
NAMED = 40  # clients whose names fit beside the lines
DIGITS = 5  # more are not seen, and make the file large


@dataclass(frozen=True)
class Control:
    id: str
    label: str
    options: Mapping[str, str]  # value → text

    @classmethod
    def of_clients(cls, prefix: str, clients: Sequence[str]) -> Control:
        return cls(f"{prefix}-client", "Client", {str(i): client for i, client in enumerate(clients)})


@dataclass(frozen=True)
class Chart:
    """One figure, or one for each option of a selector: the chart's own, or a `Control` that several follow."""

    id: str
    title: str
    about: str  # what one sees, for those who cannot see it
    figures: Mapping[str, Figure]  # by the option's value; "" if there is no selector
    options: Mapping[str, str] | None = None  # value → text, of the chart's own selector
    follows: str = ""  # id of a Control
    wide: bool = False  # as wide as the page

    @property
    def control(self) -> str:
        return self.follows or (f"{self.id}-choice" if self.options else "")


def by_metric(id: str, title: str, about: str, figures: Mapping[str, Figure], options: Mapping[str, str]) -> Chart:
    """A chart with a selector of the metric, unless there is but one."""
    if len(figures) == 1:
        return Chart(id, title, about, {"": next(iter(figures.values()))})
    return Chart(id, title, about, figures, options)


def figure(data: Sequence[Mapping[str, Any]], *, x: str = "", y: str = "", height: int = 300, **layout: Any) -> Figure:
    """Traces with the axes' titles and a height in pixels."""
    axes = {"xaxis": {"title": {"text": plain(x)}}, "yaxis": {"title": {"text": plain(y)}}}
    for name, axis in axes.items():
        axis.update(layout.pop(name, {}))
    return {"data": list(data), "layout": {"height": height, **axes, **layout}}


def line(x: Iterable[float], y: Iterable[float], name: str, colour: str, *, dashed: bool = False) -> Figure:
    """A line that shows its points while they are few."""
    at = short(x)
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(at) <= 30 else "lines",
        "name": plain(name),
        "x": at,
        "y": short(y),
        "line": {"color": colour, "width": 2, "dash": "dash" if dashed else "solid"},
        "marker": {"color": colour, "size": 5, "symbol": "circle-open" if dashed else "circle"},
    }


def dots(
    x: Sequence[float | str | None], colour: str, *, y: Sequence[float | None] | None = None, size: int = 8
) -> Figure:
    """Points; without `y` one above the other, as `names_axis` has their names."""
    at = list(range(len(x))) if y is None else list(y)
    return {"type": "scatter", "mode": "markers", "x": list(x), "y": at, "marker": {"color": colour, "size": size}}


def error_bars(above: np.ndarray, below: np.ndarray, colour: str, thickness: float) -> Figure:
    """Bars that reach so far to both sides of a point."""
    bars = {"type": "data", "symmetric": False, "array": short(above), "arrayminus": short(below)}
    return {**bars, "color": colour, "thickness": thickness, "width": 0}


def band(x: Iterable[float], lower: Iterable[float], upper: Iterable[float], colour: str, **shown: Any) -> list[Figure]:
    """What lies between two lines."""
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": short(x)}
    fill = {"fill": "tonexty", "fillcolor": colour, **shown}
    return [{**edge, "y": short(lower), "showlegend": False}, {**edge, "y": short(upper), **fill}]


def names_axis(names: Sequence[str]) -> Figure:
    """A line for each name, the first at the bottom."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": [plain(name) for name in names]}
    return {**ticks, "range": [-0.6, len(names) - 0.4], "zeroline": False}


def by_client(
    traces: list[Figure], clients: Sequence[str], x: str, *, at: float | None = None, **layout: Any
) -> Figure:
    """A line for each client, the first at the bottom, and a dotted line where nothing is gained or all is right."""
    few, names = len(clients) <= NAMED, names_axis(clients)
    if not few:
        names |= {"tickvals": [], "ticktext": []}
    low, high = names["range"]
    shapes = [] if at is None else [{"type": "line", "x0": at, "x1": at, "y0": low, "y1": high, "line": DOTTED}]
    height = min(900, 70 + (22 if few else 3) * max(4, len(clients)))
    return figure(traces, x=x, y="" if few else "clients", height=height, yaxis=names, shapes=shapes, **layout)


def rounds_axis(last: int) -> dict[str, Any]:
    return {"rangemode": "tozero", "dtick": 1} if last <= 10 else {"rangemode": "tozero"}


def short(values: Any) -> list[float | None]:
    """Numbers with few digits, and None for those that are missing.

    >>> short([1 / 3, float("nan"), 2])
    [0.33333, None, 2.0]
    """
    found = np.asarray(list(values), dtype=np.float64)
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in found]


def plain(text: object) -> str:
    """A name as it is: plotly would take some tags for its own.

    >>> plain("a < b")
    'a &lt; b'
    """
    return html.escape(str(text), quote=False)
