"""Charts of tasks with classes: reliability diagrams, and how labels are shared out among the classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.metrics import CalibrationBins, calibration_bins
from polyfed.report.charts.base import (
    COLOURS,
    DOTTED,
    Chart,
    Figure,
    Predictions,
    by_client,
    dots,
    figure,
    plain,
    short,
)
from polyfed.report.folders import rows_of


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
