"""What was predicted against what was true, with the intervals; points whose interval misses the truth stand out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.metrics import LEVEL
from polyfed.report.charts.base import Chart, Figure, figure, plain, short
from polyfed.report.rows import Rows, rows_of

MOST_POINTS = 400  # more are a cloud, and slow


def predicted(prefix: str, task: str, predictions: Mapping[str, Any], most: int = MOST_POINTS) -> Chart | None:
    """The chart of one task over all clients' rows; the coverage in its title is that of all rows, drawn or not."""
    rows = rows_of(predictions, task, ("y", "mean", "lower", "upper"))
    if not len(rows):
        return None
    inside = covered(rows)
    share = f"{100 * inside.mean():.0f} % of {len(rows):,} rows lie in their {100 * LEVEL:.0f} % interval"
    drawn = np.arange(len(rows))
    if len(rows) > most:
        drawn = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
        share += f", {most} of them drawn"
    return Chart(
        prefix,
        f"{task}: {share}",
        f"Predicted against true values of {task}; {share}.",
        {"": _figure(rows, inside, drawn)},
    )


def covered(rows: Rows) -> np.ndarray:
    """Whether the truth of each row lies in its interval, the ends included."""
    y = rows.values["y"]
    return (rows.values["lower"] <= y) & (y <= rows.values["upper"])


def _figure(rows: Rows, inside: np.ndarray, drawn: np.ndarray) -> Figure:
    traces = []
    for name, colour, chosen in (("inside", "--blue", inside), ("outside", "--orange", ~inside)):
        at = drawn[chosen[drawn]]
        if len(at) == 0:
            continue
        y, mean, lower, upper = (rows.values[column][at] for column in ("y", "mean", "lower", "upper"))
        bars = {"type": "data", "symmetric": False, "array": short(upper - mean), "arrayminus": short(mean - lower)}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"truth {name} the interval",
                "x": short(y),
                "y": short(mean),
                "marker": {"color": colour, "size": 6},
                "error_y": {**bars, "color": f"{colour}-soft", "width": 0, "thickness": 1.2},
                "text": [plain(rows.clients[i]) for i in rows.client[at].tolist()],
                "hovertemplate": "%{text}<br>true %{x}, predicted %{y}<extra></extra>",
            }
        )
    ends = short([rows.values["y"].min(), rows.values["y"].max()])
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "line": {"color": "--soft", "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return figure([*traces, diagonal], x="true", y="predicted", height=360)
