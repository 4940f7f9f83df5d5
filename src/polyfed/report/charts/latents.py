"""What was learned: the correlation of the outputs, and the latent function of a task over a one-dimensional input.

Labels are drawn where they have the units of the function. Those of other kinds (a class, a count) are ticks at the
edge, at the input where they were seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyfed.kinds import KINDS, LabelForm
from polyfed.report.charts.base import Chart, Control, Entry, Figure, band, dots, figure, line, plain, short

SCALE = [[0.0, "--minus"], [0.5, "--zero"], [1.0, "--plus"]]


def latents(
    prefix: str, tasks: Mapping[str, Entry], found: Entry, most: int = 50
) -> tuple[Control, list[Chart]] | None:
    """A chart for each task, and the selector of the client that they follow."""
    clients = [client for client, of_client in found.items() if of_client][:most]
    control, charts = Control.of_clients(prefix, clients), []
    for i, (task, described) in enumerate(tasks.items()):
        figures = {
            str(at): _latent(found[client][task], described["kind"], described.get("classes"))
            for at, client in enumerate(clients)
            if task in found[client]
        }
        if figures:
            about = f"The latent function of {task} with its 95 % band, for the client that is chosen."
            charts.append(Chart(f"{prefix}-{i}", task, about, figures, follows=control.id))
    return (control, charts) if charts else None


def _latent(latent: Entry, kind: str, classes: Sequence[object] | None) -> Figure:
    traces = [
        *band(latent["x"], latent["lower"], latent["upper"], "--blue-faint", name="95 % band"),
        {**line(latent["x"], latent["mean"], "posterior mean", "--blue"), "mode": "lines"},
    ]
    if latent.get("truth"):
        traces.append({**line(latent["x"], latent["truth"], "truth", "--orange", dashed=True), "mode": "lines"})
    has_units = KINDS[kind].form is LabelForm.NUMBER  # those of the labels
    traces += _labels(latent, has_units, classes)
    return figure(traces, x="input", y="value" if has_units else "latent function", height=320)


def _labels(latent: Entry, has_units: bool, classes: Sequence[object] | None) -> list[Figure]:
    seen = latent.get("seen") or {}
    x, y = np.asarray(seen.get("x") or [], dtype=np.float64), np.asarray(seen.get("y") or [], dtype=np.float64)
    if len(x) == 0:
        return []
    if has_units:
        drawn = dots(short(x), "--ink", y=short(y), size=5)
        return [{**drawn, "name": "labels", "marker": {**drawn["marker"], "opacity": 0.6}}]
    low, high = np.nanmin(np.asarray(latent["lower"], dtype=float)), np.nanmax(np.asarray(latent["upper"], dtype=float))
    margin = 0.06 * (high - low)
    if not classes or len(classes) != 2:
        return [_ticks(x, low - margin, "labels (where)", "--ink")]
    edges = ((0, low - margin, "--purple"), (1, high + margin, "--green"))
    return [
        _ticks(x[y == position], edge, f"label {classes[position]}", colour)
        for position, edge, colour in edges
        if (y == position).any()
    ]


def _ticks(x: np.ndarray, edge: float, name: str, colour: str) -> Figure:
    drawn = dots(short(x), colour, y=short(np.full(len(x), edge)), size=9)
    marker = {**drawn["marker"], "symbol": "line-ns", "line": {"color": colour, "width": 1.5}}
    return {**drawn, "name": plain(name), "marker": marker}


def correlation(prefix: str, described: Entry) -> Chart:
    names = [plain(name) for name in described["names"]]
    matrix = np.asarray(described["matrix"], dtype=np.float64)
    positions = list(range(len(names)))
    squares = {"zmin": -1, "zmax": 1, "colorscale": SCALE, "xgap": 2, "ygap": 2, "hoverongaps": False}
    heat = {
        "type": "heatmap",
        "x": positions,
        "y": positions,
        **squares,
        "z": [[round(value, 3) if np.isfinite(value) else None for value in row] for row in matrix.tolist()],
        "texttemplate": "%{z:.2f}",
        "customdata": [[f"{one} and {other}" for one in names] for other in names],
        "hovertemplate": "%{customdata}: %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickvals": [-1, 0, 1]},
    }
    # Positions with names as labels: two outputs may have one name, and a name may look like a number.
    ticks = {"tickvals": positions, "ticktext": names, "showgrid": False, "zeroline": False}
    below, left = {**ticks, "side": "bottom"}, {**ticks, "autorange": "reversed"}
    drawn = figure([heat], height=max(240, 60 + 46 * len(names)), xaxis=below, yaxis=left)
    about = "The correlation of each pair of outputs, from -1 to 1."
    return Chart(prefix, "Correlation of the outputs", about, {"": drawn})
