"""What was predicted against what was true, with the intervals: row by row, and how often they hold at each client."""

from __future__ import annotations

import numpy as np

from polyfed.metrics import LEVEL
from polyfed.report.charts import base
from polyfed.report.charts.base import DOTTED, Chart, Figure, Predictions, by_client, dots, figure, plain, short
from polyfed.report.folders import Rows, rows_of

MOST_POINTS = 400  # more are a cloud, and slow


def predicted(prefix: str, task: str, predictions: Predictions, most: int = MOST_POINTS) -> Chart | None:
    """The chart of one task over all clients' rows; the coverage in its title is that of all rows, drawn or not."""
    rows = rows_of(predictions, task, ("y", "mean", "lower", "upper"))
    if not len(rows):
        return None
    inside = _covered(rows)
    share = f"{100 * inside.mean():.0f} % of {len(rows):,} rows lie in their {100 * LEVEL:.0f} % interval"
    drawn = np.arange(len(rows))
    if len(rows) > most:
        drawn = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
        share += f", {most} of them drawn"
    about = f"Predicted against true values of {task}; {share}."
    return Chart(prefix, f"{task}: {share}", about, {"": _points(rows, inside, drawn)})


def coverages(prefix: str, task: str, predictions: Predictions) -> Chart | None:
    """How many of each client's rows lie in their intervals, with the 95 % interval of that number of rows (Wilson 1927)."""
    rows = rows_of(predictions, task, ("y", "lower", "upper"))
    if not len(rows):
        return None
    inside = _covered(rows)
    n = np.bincount(rows.client, minlength=len(rows.clients))
    share = np.bincount(rows.client, weights=inside, minlength=len(rows.clients)) / np.maximum(n, 1)
    order = [at for at in np.lexsort((n, share)).tolist() if n[at]]
    share, n, z = share[order], n[order], 1.959964
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    reach = np.where(np.isfinite(reach), reach, np.inf)
    above, below = np.clip(centre + reach - share, 0, None), np.clip(share - (centre - reach), 0, None)
    clients = [rows.clients[at] for at in order]
    drawn = {
        **dots(short(share), "--blue"),
        "error_x": base.error_bars(above, below, "--blue-soft", thickness=2),
        "text": [plain(client) for client in clients],
        "customdata": n.tolist(),
        "hovertemplate": "%{text}: %{x:.3f} of %{customdata} rows<extra></extra>",
    }
    off = int(((centre + reach < LEVEL) | (centre - reach > LEVEL)).sum())
    title = f"{task}: {off} of {len(order)} clients off {LEVEL:.0%}".replace("%", " %")
    about = f"The share of each client's rows of {task} that lie in their {100 * LEVEL:.0f} % interval."
    ends = {"range": [None, 1.005]}
    shown = by_client([drawn], clients, "share of rows in their interval", at=LEVEL, xaxis=ends)
    return Chart(prefix, title, about, {"": shown})


def _covered(rows: Rows) -> np.ndarray:
    """Whether the truth of each row lies in its interval, the ends included."""
    y = rows.values["y"]
    return (rows.values["lower"] <= y) & (y <= rows.values["upper"])


def _points(rows: Rows, inside: np.ndarray, drawn: np.ndarray) -> Figure:
    traces = []
    for name, colour, chosen in (("inside", "--blue", inside), ("outside", "--orange", ~inside)):
        at = drawn[chosen[drawn]]
        if len(at) == 0:
            continue
        y, mean, lower, upper = (rows.values[column][at] for column in ("y", "mean", "lower", "upper"))
        traces.append(
            {
                **dots(short(y), colour, y=short(mean), size=6),
                "name": f"truth {name} the interval",
                "error_y": base.error_bars(upper - mean, mean - lower, f"{colour}-soft", thickness=1.2),
                "text": [plain(rows.clients[i]) for i in rows.client[at].tolist()],
                "hovertemplate": "%{text}<br>true %{x}, predicted %{y}<extra></extra>",
            }
        )
    ends = short([rows.values["y"].min(), rows.values["y"].max()])
    diagonal = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "line": DOTTED}
    quiet = {"hoverinfo": "skip", "showlegend": False}
    return figure([*traces, {**diagonal, **quiet}], x="true", y="predicted", height=360)
