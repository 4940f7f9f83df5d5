"""Scores by round: test rows solid, validation rows dashed, a guess dotted; and what the clients report while they learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from polyfed.kinds import KINDS
from polyfed.metrics import BASELINE, SHARES, advice
from polyfed.report.charts.base import COLOURS, Chart, Figure, by_metric, figure, line, rounds_axis
from polyfed.report.history import History
from polyfed.report.words import guess_of, name_of

PARTS = {"test": False, "validation": True}  # whether its line is dashed
MODELS = {"personal": "", "global": "server's model alone, "}


def evaluated(prefix: str, history: History) -> list[Chart]:
    """A chart for each task of one run, with a selector of the metric."""
    return [
        chart
        for i, (task, kind) in enumerate(history.kinds.items())
        if (
            chart := _chart(
                f"{prefix}-curve-{i}",
                task,
                kind,
                _of_models(history, task),
                history.curve(task, BASELINE, part=history.part or ""),
            )
        )
    ]


def compared(prefix: str, groups: Mapping[str, Sequence[History]]) -> list[Chart]:
    """A chart for each task with a line for each method, the mean over its seeds."""
    kinds = {task: kind for histories in groups.values() for h in histories for task, kind in h.kinds.items()}
    return [
        chart
        for i, (task, kind) in enumerate(kinds.items())
        if (chart := _chart(f"{prefix}-curve-{i}", task, kind, _of_groups(groups, task), _guessed(groups, task)))
    ]


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


def _of_models(history: History, task: str) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for metric in _metrics([history], task):
        for colour, model in zip(COLOURS, MODELS, strict=False):
            for part, dashed in PARTS.items():
                if by_round := history.curve(task, metric, part=part, model=model):
                    drawn = line(by_round, by_round.values(), MODELS[model] + part, colour, dashed=dashed)
                    found.setdefault(metric, []).append(drawn)
    return found


def _of_groups(groups: Mapping[str, Sequence[History]], task: str) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for i, (name, histories) in enumerate(groups.items()):
        for metric in _metrics(histories, task):
            for part, dashed in PARTS.items():
                by_seed = [history.curve(task, metric, part=part) for history in histories]
                rounds = sorted({round for curve in by_seed for round in curve})
                if rounds:
                    means = [fmean(curve[round] for curve in by_seed if round in curve) for round in rounds]
                    label = name if part == "test" else f"{name}, {part}"
                    drawn = line(rounds, means, label, COLOURS[i % len(COLOURS)], dashed=dashed)
                    found.setdefault(metric, []).append(drawn)
    return found


def _metrics(histories: Sequence[History], task: str) -> list[str]:
    found = dict.fromkeys(metric for history in histories for metric in history.metrics(task))
    return [metric for metric in found if metric != BASELINE]


def _guessed(groups: Mapping[str, Sequence[History]], task: str) -> dict[int, float]:
    """What a guess would have scored; all methods are measured against the same one."""
    curves = [h.curve(task, BASELINE, part=h.part or "") for histories in groups.values() for h in histories]
    rounds = sorted({round for curve in curves for round in curve})
    return {round: fmean(curve[round] for curve in curves if round in curve) for round in rounds}


def _chart(
    id: str, task: str, kind: str, lines: Mapping[str, list[Figure]], guessed: Mapping[int, float]
) -> Chart | None:
    if not lines:
        return None
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
