"""Charts of several methods: their mean ranks, and what each client gains over learning alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from polyfed.kinds import KINDS
from polyfed.metrics import badness
from polyfed.report.charts.base import COLOURS, Chart, Figure, by_client, dots, figure, names_axis, plain, short
from polyfed.report.folders import means_of
from polyfed.report.tables.comparison import Group
from polyfed.report.tables.ranking import Ranking, blocks, kinds_of
from polyfed.report.templates import name_of

ALONE = "local"


def ranked(prefix: str, found: Ranking) -> Chart:
    """Mean ranks, the best at the top, with half the critical difference to each side (Nemenyi's test, Demšar 2006)."""
    names, means = list(found.mean)[::-1], list(found.mean.values())[::-1]
    drawn: Figure = {
        **dots([round(mean, 4) for mean in means], "--blue", size=10),
        "text": [plain(name) for name in names],
        "hovertemplate": "%{text}: mean rank %{x:.2f}<extra></extra>",
    }
    reach = ""
    if found.critical is not None:
        half = [round(found.critical / 2, 4)] * len(names)
        drawn["error_x"] = {"type": "data", "array": half, "color": "--blue-soft", "thickness": 3, "width": 0}
        reach = f"; {found.critical:.2f} apart is more than luck"
    height, axis = 90 + 26 * max(3, len(names)), names_axis(names)
    shown = figure([drawn], x="mean rank, lower is better", height=height, yaxis=axis, showlegend=False)
    title = f"Mean ranks over {found.n_blocks:,} clients × tasks × seeds{reach}"
    reported = ", ".join(f"{name} {mean:.2f}" for name, mean in found.mean.items())
    return Chart(prefix, title, f"Mean ranks: {reported}.", {"": shown}, wide=True)


def gains(prefix: str, groups: Sequence[Group]) -> list[Chart]:
    """What each client gains over learning alone, in the headline metric of each task; none without `local` beside others."""
    alone = next((group for group in groups if group.runs[0].method == ALONE), None)
    others = [group for group in groups if group is not alone]
    if alone is None or not others:
        return []
    return [
        chart
        for i, (task, kind) in enumerate(kinds_of(groups).items())
        if (chart := _gain(f"{prefix}-gain-{i}", task, KINDS[kind].headline, alone, others))
    ]


def _gain(id: str, task: str, metric: str, alone: Group, others: Sequence[Group]) -> Chart | None:
    before, is_share = _by_client(alone, task, metric), badness(metric, 1.0) < 0  # the more the better: a share
    gained: dict[str, dict[str, float]] = {}
    for group in others:
        after = _by_client(group, task, metric)
        both = [client for client in after if client in before and (is_share or before[client] > 0)]
        if is_share and both:
            gained[group.name] = {client: 100 * (after[client] - before[client]) for client in both}
        elif both:
            gained[group.name] = {client: 100 * (1 - after[client] / before[client]) for client in both}
    if not gained:
        return None
    clients = sorted(set().union(*gained.values()))
    clients.sort(key=lambda client: fmean(of[client] for of in gained.values() if client in of))
    traces = [
        {
            **dots(short(of.get(client, float("nan")) for client in clients), COLOURS[i % len(COLOURS)]),
            "name": plain(name),
            "text": [plain(client) for client in clients],
            "hovertemplate": f"{plain(name)}<br>%{{text}}: %{{x:.1f}}<extra></extra>",
        }
        for i, (name, of) in enumerate(gained.items())
    ]
    unit = "percentage points" if is_share else "% of the error of learning alone"
    better = [f"{sum(gain > 0 for gain in of.values())} of {len(of)} with {name}" for name, of in gained.items()]
    about = f"Gain of each client over learning alone in {task}, in {unit}; above 0 at {', '.join(better)}."
    drawn = by_client(traces, clients, f"{name_of(metric)} gained, {unit}", at=0.0)
    return Chart(id, f"{task}: better off at {', '.join(better)}", about, {"": drawn}, wide=True)


def _by_client(group: Group, task: str, metric: str) -> dict[str, float]:
    """The mean over the seeds."""
    return means_of((client, value) for (client, _), value in blocks(group, task, metric).items())
