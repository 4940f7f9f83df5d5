"""Charts with a line for each client: what it gains over learning alone, how often intervals hold, how classes are balanced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from polyfed.kinds import KINDS
from polyfed.metrics import LEVEL, badness
from polyfed.report.charts.base import COLOURS, Chart, Figure, figure, plain, short
from polyfed.report.charts.predicted import covered
from polyfed.report.rows import rows_of
from polyfed.report.tables.comparison import Group
from polyfed.report.tables.ranking import blocks
from polyfed.report.words import name_of

NAMED = 40  # clients whose names fit beside the lines
ALONE = "local"


def gains(prefix: str, groups: Sequence[Group]) -> list[Chart]:
    """What each client gains over learning alone, in the headline metric of each task; none without `local` beside others."""
    alone = next((group for group in groups if group.runs[0].method == ALONE), None)
    others = [group for group in groups if group is not alone]
    if alone is None or not others:
        return []
    kinds = {task: kind for group in groups for run in group.runs for task, kind in run.history.kinds.items()}
    return [
        chart
        for i, (task, kind) in enumerate(kinds.items())
        if (chart := _gain(f"{prefix}-gain-{i}", task, KINDS[kind].headline, alone, others))
    ]


def _gain(id: str, task: str, metric: str, alone: Group, others: Sequence[Group]) -> Chart | None:
    before = _by_client(alone, task, metric)
    gained = {group.name: _gained(before, _by_client(group, task, metric), metric) for group in others}
    gained = {name: of_clients for name, of_clients in gained.items() if of_clients}
    if not gained:
        return None
    clients = sorted(set().union(*gained.values()), key=lambda c: fmean(of[c] for of in gained.values() if c in of))
    traces = [
        {
            **_dots([of.get(client) for client in clients], COLOURS[i % len(COLOURS)]),
            "name": plain(name),
            "text": [plain(client) for client in clients],
            "hovertemplate": f"{plain(name)}<br>%{{text}}: %{{x:.1f}}<extra></extra>",
        }
        for i, (name, of) in enumerate(gained.items())
    ]
    shares = badness(metric, 1.0) < 0  # the more the better: a share
    unit = "percentage points" if shares else "% of the error of learning alone"
    better = [f"{sum(gain > 0 for gain in of.values())} of {len(of)} with {name}" for name, of in gained.items()]
    about = f"Gain of each client over learning alone in {task}, in {unit}; above 0 at {', '.join(better)}."
    drawn = _by_lines(traces, clients, f"{name_of(metric)} gained, {unit}", at=0.0)
    return Chart(id, f"{task}: better off at {', '.join(better)}", about, {"": drawn}, wide=True)


def _gained(before: Mapping[str, float], after: Mapping[str, float], metric: str) -> dict[str, float]:
    """Client → what is gained, in percentage points of a share, or in per cent of an error."""
    if badness(metric, 1.0) < 0:
        return {c: 100 * (after[c] - before[c]) for c in before.keys() & after.keys()}
    return {c: 100 * (1 - after[c] / before[c]) for c in before.keys() & after.keys() if before[c] > 0}


def _by_client(group: Group, task: str, metric: str) -> dict[str, float]:
    """The mean over the seeds."""
    found: dict[str, list[float]] = {}
    for (client, _), value in blocks(group, task, metric).items():
        found.setdefault(client, []).append(value)
    return {client: fmean(values) for client, values in found.items()}


def coverages(prefix: str, task: str, predictions: Mapping[str, Any]) -> Chart | None:
    """How many of each client's rows lie in their intervals, with the 95 % interval of so many rows (Wilson 1927)."""
    rows = rows_of(predictions, task, ("y", "lower", "upper"))
    if not len(rows):
        return None
    inside = covered(rows)
    n = np.bincount(rows.client, minlength=len(rows.clients))
    share = np.bincount(rows.client, weights=inside, minlength=len(rows.clients)) / np.maximum(n, 1)
    order = [at for at in np.lexsort((n, share)).tolist() if n[at]]
    centre, reach = _wilson(share[order], n[order])
    dots = {
        **_dots(short(share[order]), "--blue"),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": short(np.clip(centre + reach - share[order], 0, None)),
            "arrayminus": short(np.clip(share[order] - (centre - reach), 0, None)),
            "color": "--blue-soft",
            "thickness": 2,
            "width": 0,
        },
        "text": [plain(rows.clients[at]) for at in order],
        "customdata": [int(n[at]) for at in order],
        "hovertemplate": "%{text}: %{x:.3f} of %{customdata} rows<extra></extra>",
    }
    off = int(((centre + reach < LEVEL) | (centre - reach > LEVEL)).sum())
    title = f"{task}: {off} of {len(order)} clients off {LEVEL:.0%}".replace("%", " %")
    about = f"The share of each client's rows of {task} that lie in their {100 * LEVEL:.0f} % interval."
    drawn = _by_lines([dots], [rows.clients[at] for at in order], "share of rows in their interval", at=LEVEL)
    drawn["layout"]["xaxis"]["range"] = [None, 1.005]
    return Chart(prefix, title, about, {"": drawn})


def balance(prefix: str, task: str, classes: Sequence[Any], data: Mapping[str, Any]) -> Chart | None:
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
    drawn = _by_lines(traces, clients, "share of the training labels", barmode="stack", bargap=0.25)
    drawn["layout"]["xaxis"]["range"] = [0, 1]
    total = sum(map(sum, counts.values()))
    about = f"The share of each class among the training labels of {task}, client by client."
    return Chart(prefix, f"{task}: {total:,} training labels", about, {"": drawn})


def _dots(x: Sequence[float | None], colour: str) -> Figure:
    values = [None if value is None else float(f"{value:.5g}") for value in x]
    marker = {"color": colour, "size": 8}
    return {"type": "scatter", "mode": "markers", "x": values, "y": list(range(len(values))), "marker": marker}


def _by_lines(
    traces: list[Figure], clients: Sequence[str], x: str, *, at: float | None = None, **layout: Any
) -> Figure:
    """A line for each client, the first at the bottom, and a dotted line where nothing is gained or all is right."""
    few = len(clients) <= NAMED
    ends = [-0.6, len(clients) - 0.4]
    names: Figure = {"range": ends, "tickvals": [], "ticktext": [], "zeroline": False}
    if few:
        names |= {"tickvals": list(range(len(clients))), "ticktext": [plain(client) for client in clients]}
    line = {"color": "--soft", "dash": "dot", "width": 1.5}
    shapes = [] if at is None else [{"type": "line", "x0": at, "x1": at, "y0": ends[0], "y1": ends[1], "line": line}]
    height = min(900, 70 + (22 if few else 3) * max(4, len(clients)))
    return figure(traces, x=x, y="" if few else "clients", height=height, yaxis=names, shapes=shapes, **layout)


def _wilson(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and reach of the 95 % interval of a share of n."""
    z = 1.959964
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return centre, np.where(np.isfinite(reach), reach, math.inf)
