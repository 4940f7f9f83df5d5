"""By round: scores (test rows solid, validation rows dashed, a guess dotted), what the clients report, and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from polyfed.counting import in_bytes
from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, SHARES, advice
from polyfed.report.charts.base import COLOURS, Chart, Figure, by_metric, figure, line, rounds_axis
from polyfed.report.folders import History
from polyfed.report.templates import guess_of, name_of

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
    return by_metric(f"{prefix}-training", "Training", about, figures, {metric: name_of(metric) for metric in figures})


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
        if lines := _lines(task, series):
            made.append(_chart(f"{prefix}-curve-{i}", task, kind, lines, guessed))
    return made


def _lines(task: str, series: Sequence[Series]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for i, (names, model, histories) in enumerate(series):
        for metric in dict.fromkeys(metric for history in histories for metric in history.metrics(task)):
            for part, dashed in PARTS.items() if metric != BASELINE else ():
                if means := _mean(history.curve(task, metric, part=part, model=model) for history in histories):
                    drawn = line(means, means.values(), names[part], COLOURS[i % len(COLOURS)], dashed=dashed)
                    found.setdefault(metric, []).append(drawn)
    return found


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
    return by_metric(id, task, f"Scores of {task} by round, the mean over the clients.", figures, options)
