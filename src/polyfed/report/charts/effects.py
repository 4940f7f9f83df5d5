"""What a client's model expects of a task as one input moves (partial dependence), and which inputs matter.

Importance is by the length-scales where the kernel has one for each input (automatic relevance determination: 1 / ℓ, Neal
1996), and else by how far the curves move (their standard deviation; Greenwell, Boehmke & McCarthy 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from polyfed.counting import as_people_count
from polyfed.report.charts import base
from polyfed.report.charts.base import COLOURS, Chart, Control, Entry, Figure, band, dots, figure, line, plain, short
from polyfed.report.folders import means_of

MOST_INPUTS = 4  # of each task, those that move it most
Effects = Mapping[str, Mapping[str, Sequence[Entry]]]  # client → task → inputs


def effects(
    prefix: str, tasks: Mapping[str, Entry], found: Effects, most: int = 12
) -> tuple[Control, list[Chart]] | None:
    """A chart for each task and each input that moves it, and the selector of the client that they follow."""
    clients = sorted((client for client, of_client in found.items() if of_client), key=as_people_count)[:most]
    control, charts = Control.of_clients(prefix, clients), []
    for t, (task, described) in enumerate(tasks.items()):
        of_task = {client: {one["input"]: one for one in found[client].get(task, ())} for client in clients}
        moved = movement(found, task)
        for i, name in enumerate(sorted(moved, key=lambda name: -moved[name])[:MOST_INPUTS]):
            figures = {
                str(at): _effect(of_task[client][name], task, described.get("classes") or [])
                for at, client in enumerate(clients)
                if name in of_task[client]
            }
            about = f"What is expected of {task} as {name} moves, with its 95 % band, for the client that is chosen."
            charts.append(Chart(f"{prefix}-{t}-{i}", f"{task} by {name}", about, figures, follows=control.id))
    return (control, charts) if charts else None


def movement(found: Effects, task: str) -> dict[str, float]:
    """Input → how far the task moves with it: the standard deviation of its curves, the mean over the clients."""
    return means_of(
        (one["input"], fmean(float(np.nanstd(curve)) if np.isfinite(curve).any() else 0.0 for curve in curves))
        for of_client in found.values()
        for one in of_client.get(task, ())
        if (curves := [np.asarray(curve["mean"], dtype=np.float64) for curve in one["curves"]])
    )


def importance(prefix: str, model: Entry, inputs: Sequence[str], found: Effects) -> Chart | None:
    """Which inputs matter: by ARD where there is a length-scale for each of them, else by how far the tasks move."""
    scales = [one for one in model.get("length_scales") or () if len(one["values"]) == len(inputs) > 1]
    if scales:
        marks = {
            f"latent function {one['latent']}": {
                name: 1 / length for name, length in zip(inputs, one["values"], strict=True) if length
            }
            for one in scales
        }
        title, unit = "Importance of the inputs, by their length-scales", "1 / length-scale, of scaled inputs"
    else:
        tasks = dict.fromkeys(task for of_client in found.values() for task in of_client)
        moved = {task: movement(found, task) for task in tasks}
        totals = {task: sum(of.values()) for task, of in moved.items()}
        marks = {task: {name: v / totals[task] for name, v in of.items()} for task, of in moved.items() if totals[task]}
        title, unit = "Importance of the inputs, by how far tasks move with them", "share of the task's movement"
    if not marks:
        return None
    names = sorted(set().union(*marks.values()), key=lambda name: max(of.get(name, 0) for of in marks.values()))
    traces = [
        {
            **dots(short(of.get(name, np.nan) for name in names), COLOURS[i % len(COLOURS)], size=9),
            "name": plain(whose),
            "text": [plain(name) for name in names],
            "hovertemplate": f"{plain(whose)}, %{{text}}: %{{x:.3f}}<extra></extra>",
        }
        for i, (whose, of) in enumerate(marks.items())
    ]
    height, axes = 80 + 24 * max(3, len(names)), {"xaxis": {"rangemode": "tozero"}, "yaxis": base.names_axis(names)}
    about = f"{title}: {', '.join(reversed(names))}, the most important first."
    return Chart(prefix, title, about, {"": figure(traces, x=unit, height=height, **axes)}, wide=True)


def _effect(effect: Entry, task: str, classes: Sequence[object]) -> Figure:
    texts, several = any(isinstance(value, str) for value in effect["x"]), len(effect["curves"]) > 1
    x = list(range(len(effect["x"]))) if texts else effect["x"]
    axis = {**base.names_axis(effect["x"]), "range": [-0.5, len(x) - 0.5]} if texts else {}
    traces: list[Figure] = []
    for k, curve in enumerate(effect["curves"]):
        name = f"p({classes[k]})" if several and k < len(classes) else "expected"
        traces += _trace(x, curve, name, COLOURS[k % len(COLOURS)], texts)
    label = f"p({classes[1]})" if len(classes) == 2 else "probability" if classes else task
    axes = {"xaxis": axis, "yaxis": {"range": [0, 1]} if classes else {}}
    return figure(traces, x=effect["input"], y=label, height=280, showlegend=several, **axes)


def _trace(x: Sequence[float], curve: Entry, name: str, colour: str, texts: bool) -> list[Figure]:
    """A line in its band; of texts, points with bars."""
    drawn = {**line(x, curve["mean"], name, colour), "mode": "markers" if texts else "lines"}
    known = bool(curve.get("lower") and curve.get("upper"))
    if not texts:
        return [*(band(x, curve["lower"], curve["upper"], "--blue-faint", showlegend=False) if known else []), drawn]
    drawn["marker"] = {"color": colour, "size": 9}
    if known:
        mean, lower, upper = (np.asarray(curve[key], dtype=np.float64) for key in ("mean", "lower", "upper"))
        drawn["error_y"] = base.error_bars(upper - mean, mean - lower, "--blue-soft", thickness=3)
    return [drawn]
