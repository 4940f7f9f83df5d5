"""The latent function behind a task over a one-dimensional input: mean, 95 % band, the truth if it is known, and the data.

Labels are drawn where they have the units of the function. Those of other kinds (a class, a count) are ticks at the
edge, at the input where they were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.kinds import KINDS, LabelForm
from polyfed.report.charts.base import Chart, Control, Figure, figure, line, plain, short

MOST_CLIENTS = 50  # each has several hundred numbers for each task


def latents(
    prefix: str, tasks: Mapping[str, Any], found: Mapping[str, Any], most: int = MOST_CLIENTS
) -> tuple[Control, list[Chart]] | None:
    """A chart for each task, and the selector of the client that they follow."""
    clients = [client for client, of_client in found.items() if of_client][:most]
    if not clients:
        return None
    control = Control(f"{prefix}-client", "Client", {str(i): client for i, client in enumerate(clients)})
    charts = []
    for i, (task, described) in enumerate(tasks.items()):
        figures = {
            str(at): _figure(found[client][task], described["kind"], described.get("classes"))
            for at, client in enumerate(clients)
            if task in found[client]
        }
        if figures:
            about = f"The latent function of {task} with its 95 % band, for the client that is chosen."
            charts.append(Chart(f"{prefix}-{i}", task, about, figures, follows=control.id))
    return (control, charts) if charts else None


def _figure(latent: Mapping[str, Any], kind: str, classes: Any) -> Figure:
    band = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    x = short(latent["x"])
    mean = {**line(latent["x"], latent["mean"], "posterior mean", "--blue"), "mode": "lines"}
    traces = [
        {**band, "x": x, "y": short(latent["lower"]), "showlegend": False},
        {
            **band,
            "x": x,
            "y": short(latent["upper"]),
            "fill": "tonexty",
            "fillcolor": "--blue-faint",
            "name": "95 % band",
        },
        mean,
    ]
    if latent.get("truth"):
        traces.append({**line(latent["x"], latent["truth"], "truth", "--orange", dashed=True), "mode": "lines"})
    traces += _labels(latent, kind, classes)
    return figure(traces, x="input", y="value" if _has_units(kind) else "latent function", height=320)


def _has_units(kind: str) -> bool:
    """Whether the latent function has the units of the labels."""
    return KINDS[kind].form is LabelForm.NUMBER


def _labels(latent: Mapping[str, Any], kind: str, classes: Any) -> list[Figure]:
    seen = latent.get("seen") or {}
    x, y = np.asarray(seen.get("x") or [], dtype=np.float64), np.asarray(seen.get("y") or [], dtype=np.float64)
    if len(x) == 0:
        return []
    dots = {"type": "scatter", "mode": "markers"}
    if _has_units(kind):
        marker = {"color": "--ink", "size": 5, "opacity": 0.6}
        return [{**dots, "name": "labels", "x": short(x), "y": short(y), "marker": marker}]
    low, high = np.nanmin(np.asarray(latent["lower"], dtype=float)), np.nanmax(np.asarray(latent["upper"], dtype=float))
    margin = 0.06 * (high - low)
    if not classes or len(classes) != 2:
        return [_ticks(dots, x, low - margin, "labels (where)", "--ink")]
    edges = ((0, low - margin, "--purple"), (1, high + margin, "--green"))
    return [
        _ticks(dots, x[y == position], edge, f"label {classes[position]}", colour)
        for position, edge, colour in edges
        if (y == position).any()
    ]


def _ticks(dots: Figure, x: np.ndarray, edge: float, name: str, colour: str) -> Figure:
    marker = {"symbol": "line-ns", "size": 9, "line": {"color": colour, "width": 1.5}, "color": colour}
    return {**dots, "name": plain(name), "x": short(x), "y": short(np.full(len(x), edge)), "marker": marker}
