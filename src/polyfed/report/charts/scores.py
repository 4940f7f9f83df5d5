"""By round: scores (test rows solid, validation rows dashed, a guess dotted), what the clients report, and bytes; and of
several methods, their mean ranks and what each client gains over learning alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from polyfed.counting import in_bytes
from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, SHARES, advice, badness
from polyfed.report.charts import base
from polyfed.report.charts.base import COLOURS, Chart, Figure, dots, figure, line, plain, rounds_axis, short
from polyfed.report.folders import History, means_of
from polyfed.report.tables.comparison import Group
from polyfed.report.tables.ranking import Ranking, blocks, kinds_of
from polyfed.report.templates import guess_of, name_of

ALONE = "local"
PARTS = {"test": False, "validation": True}  # whether its line is dashed
MODELS = {"personal": "", "global": "server's model alone, "}

# Part → the name of its line, a model, and runs that differ in the seed.
Series = tuple[Mapping[str, str], str, Sequence[History]]


def evaluated(prefix: str, history: History) -> list[Chart]:
    """A chart for each task of one run, with a selector of the metric."""
    series = [({part: says + part for part in PARTS}, model, [history]) for model, says in MODELS.items()]
    return _charts(prefix, series)


def compared(prefix: str, groups: Mapping[str, Sequence[History]]) -> list[Chart]:
    """A chart for each task with a line for each method, the mean over its seeds."""
    named = {name: {"test": name, "validation": f"{name}, validation"} for name in groups}
    return _charts(prefix, [(named[name], "personal", histories) for name, histories in groups.items()])


def trained(prefix: str, history: History) -> Chart | None:
    """What the clients report with their updates, such as their bounds: the mean over the clients of a round."""
    if not history.training:
        return None
    figures = {
        metric: figure(
            [line(by_round, by_round.values(), name_of(metric), "--purple")],
            x="round",
            y=name_of(metric),
            xaxis=rounds_axis(max(by_round)),
            showlegend=False,
        )
        for metric, by_round in history.training.items()
    }
    about = "The mean over the clients of what they report with their updates, by round."
    return base.by_metric(
        f"{prefix}-training", "Training", about, figures, {metric: name_of(metric) for metric in figures}
    )


def traffic(prefix: str, history: History) -> Chart | None:
    """Bars for each round, one direction on top of the other."""
    if not history.rounds:
        return None
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [round.round for round in history.rounds],
            "y": [getattr(round, column) for round in history.rounds],
            "marker": {"color": colour},
            "hovertemplate": "round %{x}: %{y:,} bytes<extra></extra>",
        }
        for name, column, colour in (("down", "bytes_down", "--blue"), ("up", "bytes_up", "--orange"))
    ]
    axes = {"xaxis": rounds_axis(history.round), "yaxis": {"rangemode": "tozero"}}
    drawn = figure(bars, x="round", y="bytes", height=280, barmode="stack", bargap=0.35, **axes)
    total = sum(round.bytes_down + round.bytes_up for round in history.rounds)
    title = f"{in_bytes(total, 'bytes')} in {len(history.rounds)} rounds"
    return Chart(f"{prefix}-bytes", title, f"Bytes sent by round; {title} in all.", {"": drawn})


def _charts(prefix: str, series: Sequence[Series]) -> list[Chart]:
    histories = [history for _, _, of_series in series for history in of_series]
    kinds = {task: kind for history in histories for task, kind in history.kinds.items()}
    made = []
    for i, (task, kind) in enumerate(kinds.items()):
        # What a guess would have scored; all methods are measured against the same one.
        guessed = _mean(history.curve(task, BASELINE, part=history.part or "") for history in histories)
        lines: dict[str, list[Figure]] = {}
        for k, (names, model, of_series) in enumerate(series):
            for metric in dict.fromkeys(metric for history in of_series for metric in history.metrics(task)):
                for part, dashed in PARTS.items() if metric != BASELINE else ():
                    if means := _mean(history.curve(task, metric, part=part, model=model) for history in of_series):
                        drawn = line(means, means.values(), names[part], COLOURS[k % len(COLOURS)], dashed=dashed)
                        lines.setdefault(metric, []).append(drawn)
        if lines:
            made.append(_chart(f"{prefix}-curve-{i}", task, kind, lines, guessed))
    return made


def _mean(of_seeds: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Round → the mean over the seeds that have it."""
    curves = list(of_seeds)
    rounds = sorted({round for curve in curves for round in curve})
    return {round: fmean(curve[round] for curve in curves if round in curve) for round in rounds}


def _chart(id: str, task: str, kind: str, lines: Mapping[str, list[Figure]], guessed: Mapping[int, float]) -> Chart:
    first = KINDS[kind].headline
    metrics = sorted(lines, key=lambda metric: metric != first)  # the headline metric is chosen at first
    drawn = {metric: list(lines[metric]) for metric in metrics}
    if guessed and first in drawn:
        dotted = {"color": "--grey", "width": 1.5, "dash": "dot"}
        guess = line(guessed, guessed.values(), f"guessing the {guess_of(kind)}", "--grey")
        drawn[first].append({**guess, "line": dotted})
    figures = {
        metric: figure(
            drawn[metric],
            x="round",
            y=name_of(metric),
            xaxis=rounds_axis(max(max(drawn["x"]) for drawn in lines[metric])),
            yaxis={"range": [None, 1]} if metric in SHARES else {},
            showlegend=len(drawn[metric]) > 1,
        )
        for metric in metrics
    }
    options = {metric: f"{name_of(metric)} ({advice(metric)})" for metric in metrics}
    return base.by_metric(id, task, f"Scores of {task} by round, the mean over the clients.", figures, options)


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
    height, axis = 90 + 26 * max(3, len(names)), base.names_axis(names)
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
    drawn = base.by_client(traces, clients, f"{name_of(metric)} gained, {unit}", at=0.0)
    return Chart(id, f"{task}: better off at {', '.join(better)}", about, {"": drawn}, wide=True)


def _by_client(group: Group, task: str, metric: str) -> dict[str, float]:
    """The mean over the seeds."""
    return means_of((client, value) for (client, _), value in blocks(group, task, metric).items())
