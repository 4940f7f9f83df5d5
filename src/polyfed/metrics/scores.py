"""Which metrics belong to which kind of task, computed from a prediction and what was observed, and which way they are better.

A prediction is any object with the attributes that these functions read, as those of `polyfed.predictions` have.
Labels are in the users' own units and words.

    score("regression", prediction, y)    {"mse": 0.21, "rmse": 0.46, "r2": 0.8, "nlpd": 0.63, "coverage": 0.95, "width": 1.8}
    score(..., guess=guess)               and {"baseline": 1.02, "skill": 0.8}, where there is a guess to beat

Which metrics a kind has, which one is shown first and by which one models are chosen, its `Kind` says (`polyfed.kinds`).

>>> is_better("accuracy", 0.9, 0.8), is_better("rmse", 0.9, 0.8), is_better("coverage", 0.96, 0.99)
(True, False, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from polyfed.errors import DataError
from polyfed.kinds import KINDS, LabelForm
from polyfed.metrics.classes import accuracy, balanced_accuracy, brier, class_auroc, ece, nll
from polyfed.metrics.guessing import Guess, observed
from polyfed.metrics.regression import binomial_deviance, coverage, mse, nlpd, poisson_deviance, r2, rmse, width

BASELINE, SKILL = "baseline", "skill"  # the headline metric of a guess, and the skill of a model against it
LEVEL = 0.95  # of the intervals behind coverage and width
SHARES = ("accuracy", "balanced_accuracy", "auroc", "coverage")  # from 0 to 1
_HIGHER = ("accuracy", "balanced_accuracy", "auroc", "r2", SKILL)

Metric = Callable[[Any, Any], float | None]  # (prediction, y) -> value; None where these labels do not define it

METRICS: dict[str, Metric] = {
    "mse": lambda prediction, y: mse(prediction.mean, y),
    "rmse": lambda prediction, y: rmse(prediction.mean, observed(y)),
    "r2": lambda prediction, y: r2(prediction.mean, observed(y)),
    "nlpd": lambda prediction, y: nlpd(prediction.log_density(y)),
    "coverage": lambda prediction, y: coverage(*prediction.interval(LEVEL), y=y),
    "width": lambda prediction, y: width(*prediction.interval(LEVEL)),
    "deviance": lambda prediction, y: (
        binomial_deviance(prediction.mean, *y.T) if np.ndim(y) == 2 else poisson_deviance(prediction.mean, y)
    ),
    "accuracy": lambda prediction, y: accuracy(*_positions(prediction, y)),
    "balanced_accuracy": lambda prediction, y: balanced_accuracy(*_positions(prediction, y)),
    "auroc": lambda prediction, y: class_auroc(prediction.class_proba, prediction.positions(y)),
    "nll": lambda prediction, y: nll(prediction.log_density(y)),
    "brier": lambda prediction, y: brier(prediction.proba, prediction.positions(y)),
    "ece": lambda prediction, y: ece(prediction.proba, prediction.positions(y)),
}


def badness(metric: str, value: float) -> float:
    """The same on a scale where less is better; coverage is best at its level, neither low nor high."""
    if metric == "coverage":
        return abs(value - LEVEL)
    return -value if metric in _HIGHER else value


def is_better(metric: str, value: float, other: float) -> bool:
    return badness(metric, value) < badness(metric, other)


def advice(metric: str) -> str:
    """Which way is better, in words.

    >>> advice("coverage")
    'best near 0.95'
    """
    if metric == "coverage":
        return f"best near {LEVEL}"
    return "higher is better" if metric in _HIGHER else "lower is better"


def is_score(kind: str, name: Any) -> bool:
    """Whether `score` may say something of this name about this kind of task."""
    return name in KINDS[kind].metrics or name in (BASELINE, SKILL)


def score(kind: str, prediction: Any, y: Any, *, guess: Guess | None = None) -> dict[str, float]:
    """Every metric of this kind of task that the labels define; none if there is no label to compare with.

    With a guess, also its own headline metric and the skill of the prediction against it.
    """
    described = KINDS[kind]
    if len(y) == 0:
        return {}
    y = _pairs(y) if described.form is LabelForm.PAIR else y
    once = _Once(prediction)
    found = {name: value for name in described.metrics if (value := METRICS[name](once, y)) is not None}
    if guess is not None:
        of_guess = prediction.positions(y) if described.has_classes else np.asarray(y, dtype=np.float64)
        found[BASELINE] = guess.headline(of_guess)
        if (skill := guess.skill(found, of_guess)) is not None:
            found[SKILL] = skill
    return found


class _Once:
    """A prediction that works out its interval only once: that of counts takes longer than all the rest."""

    def __init__(self, prediction: Any) -> None:
        self._prediction = prediction
        self._intervals: dict[float, tuple[np.ndarray, np.ndarray]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prediction, name)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        if level not in self._intervals:
            self._intervals[level] = self._prediction.interval(level)
        return self._intervals[level]


def _positions(prediction: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    return prediction.positions(prediction.label), prediction.positions(y)


def _pairs(y: Any) -> np.ndarray:
    pairs = np.asarray(y, dtype=np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        remedy = "give two columns, successes and trials, as in [[3, 10], [0, 4]]"
        raise DataError(f"labels have shape {pairs.shape}", remedy=remedy)
    return pairs


class Pooled(NamedTuple):
    """One metric over all clients that have it."""

    mean: float  # each client counts once
    std: float  # over the clients, which are all there are (0 for a single one)
    weighted_mean: float  # each row counts once; of an rmse, this is not the rmse of all rows together
    n_clients: int
    n_rows: int


def pooled(scores: Iterable[tuple[Mapping[str, float], int]]) -> dict[str, Pooled]:
    """Pool the (scores, number of rows) of clients; a metric that a client does not have is left out there.

    >>> pooled([({"rmse": 1.0}, 30), ({"rmse": 3.0}, 10), ({}, 0)])["rmse"]
    Pooled(mean=2.0, std=1.0, weighted_mean=1.5, n_clients=2, n_rows=40)
    """
    values: dict[str, list[tuple[float, int]]] = {}
    for client, (of_client, n_rows) in enumerate(scores):
        if not of_client:
            continue
        if not math.isfinite(n_rows) or n_rows < 1 or n_rows != int(n_rows):
            remedy = "give the number of rows that were scored"
            raise DataError(f"scores of {n_rows} rows cannot be pooled", where=f"entry {client}", remedy=remedy)
        for name, value in of_client.items():
            values.setdefault(name, []).append((value, int(n_rows)))
    made = {}
    for name, pairs in values.items():
        value, n = np.array(pairs, dtype=np.float64).T
        mean, std, total = float(value.mean()), float(value.std()), n.sum()
        made[name] = Pooled(mean, std, float(value @ n / total), len(value), int(total))
    return made
