"""What was predicted against what was true. Tasks with classes: reliability diagrams, and how labels are shared out among the
classes. Numbers with their intervals: row by row, and how often they hold at each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyfed.metrics import LEVEL, CalibrationBins, calibration_bins
from polyfed.report.charts import base
from polyfed.report.charts.base import COLOURS, DOTTED, Chart, Figure, by_client, dots, figure, plain, short
from polyfed.report.folders import Rows, rows_of

MOST_POINTS = 400  # more are a cloud, and slow
Predictions = Mapping[str, Any]  # client → task → columns, as in results.json


def reliability(prefix: str, task: str, predictions: Predictions) -> Chart | None:
    """Bars as high as the accuracy, a tick where the confidence is, and below how many rows there are."""
    rows = rows_of(predictions, task, ("y", "proba"))
    if not len(rows):
        return None
    proba = rows.values["proba"]
    # One column of two: of two equally probable classes the second is the answer, as it is in predictions.
    bins = calibration_bins(proba[:, 1] if proba.shape[1] == 2 else proba, rows.values["y"])
    title = f"{task}: ECE {bins.ece:.3f} over {len(rows):,} rows"
    about = f"Accuracy against confidence of {task} in {len(bins.count)} bins; the calibration error is {bins.ece:.3f}."
    return Chart(prefix, title, about, {"": _diagram(bins, n_classes=proba.shape[1])})


def balance(prefix: str, task: str, classes: Sequence[object], data: Predictions) -> Chart | None:
    """How the training labels of each client are shared out among the classes."""
    counts = {client: of["labels"][task]["classes"] for client, of in data.items() if task in of["labels"]}
    counts = {client: n for client, n in counts.items() if n and len(n) == len(classes) and sum(n)}
    if not counts:
        return None
    clients = sorted(counts, key=lambda client: counts[client][-1] / sum(counts[client]))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(label),
            "y": list(range(len(clients))),
            "x": short(counts[client][k] / sum(counts[client]) for client in clients),
            "text": [plain(client) for client in clients],
            "textposition": "none",
            "customdata": [counts[client][k] for client in clients],
            "marker": {"color": COLOURS[k % len(COLOURS)]},
            "hovertemplate": f"%{{text}}: %{{customdata}} labels {plain(label)}<extra></extra>",
        }
        for k, label in enumerate(classes)
    ]
    ends = {"range": [0, 1]}
    drawn = by_client(traces, clients, "share of the training labels", barmode="stack", bargap=0.25, xaxis=ends)
    total = sum(map(sum, counts.values()))
    about = f"The share of each class among the training labels of {task}, client by client."
    return Chart(prefix, f"{task}: {total:,} training labels", about, {"": drawn})


def _diagram(bins: CalibrationBins, n_classes: int) -> Figure:
    filled = bins.count > 0
    centre, width = (bins.edges[:-1] + bins.edges[1:]) / 2, float(bins.edges[1])
    shown = np.column_stack([bins.edges[:-1], bins.edges[1:], np.nan_to_num(bins.confidence), bins.count])[filled]
    hover = (
        "confidence %{customdata[0]:.2f} to %{customdata[1]:.2f}, on average %{customdata[2]:.3f}<br>"
        "right %{y:.3f} of %{customdata[3]} rows<extra></extra>"
    )
    bars = {"type": "bar", "x": short(centre[filled]), "width": width * 0.92}
    accuracy = {
        **bars,
        "y": short(bins.accuracy[filled]),
        "name": "accuracy",
        "marker": {"color": "--blue-soft"},
        "customdata": [short(row) for row in shown],
        "hovertemplate": hover,
    }
    ticks = {"symbol": "line-ew", "size": 16, "line": {"color": "--orange", "width": 3}}
    points = dots(short(centre[filled]), "", y=short(bins.confidence[filled]))
    confidence = {**points, "name": "mean confidence", "marker": ticks, "hoverinfo": "skip"}
    counts = {
        **bars,
        "y": bins.count[filled].tolist(),
        "yaxis": "y2",
        "name": "rows",
        "showlegend": False,
        "marker": {"color": "--grey-soft"},
        "text": [f"{n:,}" for n in bins.count[filled].tolist()],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    least = width * int(1 / n_classes / width)  # the top class of K has at least 1 / K
    layout = {
        "xaxis": {"range": [max(0.0, least - 0.01), 1.01], "anchor": "y2"},
        "yaxis": {"range": [0, 1.02], "domain": [0.3, 1]},
        "yaxis2": {"title": {"text": "rows"}, "domain": [0, 0.2], "rangemode": "tozero", "nticks": 3},
        "shapes": [{"type": "line", "x0": 0, "y0": 0, "x1": 1, "y1": 1, "line": DOTTED, "layer": "below"}],
    }
    return figure([accuracy, confidence, counts], x="confidence", y="accuracy", height=360, **layout)


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
