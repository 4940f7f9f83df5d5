"""Which metrics belong to which kind of task, computed from a prediction and what was observed, and which way they are better.

A prediction is any object with the attributes that these functions read, as those of `polyfed.predictions` have.
Labels are in the users' own units and words.

    score("regression", prediction, y)    {"mse": 0.21, "rmse": 0.46, "r2": 0.8, "nlpd": 0.63, "coverage": 0.95, "width": 1.8}
    score(..., guess=guess)               and {"baseline": 1.02, "skill": 0.8}, where there is a guess to beat

Which metrics a kind has, which one is shown first and by which one models are chosen, its `Kind` says (`polyfed.kinds`).

>>> is_better("accuracy", 0.9, 0.8), is_better("rmse", 0.9, 0.8), is_better("coverage", 0.96, 0.99)
(True, False, True)

A guess that costs nothing says what a score is worth. It knows the training labels of one client and no input: their mean,
their most frequent class, the frequencies of their classes. Skill is the share of the guess's error that a model removes
(Murphy: "Skill Scores Based on the Mean Square Error and Their Relationships to the Correlation Coefficient", Monthly Weather
Review 1988, doi:10.1175/1520-0493(1988)116<2417:SSBOTM>2.0.CO;2; of classes, the Brier skill score): 1 is perfect, 0 is no
better than guessing, below 0 is worse.

>>> guess = Guess.of("regression", [60.0, 80.0])
>>> guess.headline([70.0, 74.0])                           # the rmse of predicting 70
2.8284
>>> guess.skill({"rmse": 1.0}, [70.0, 74.0])               # 1 - 1 / 8
0.875
>>> Guess.of("binary", [0, 0, 0, 1], n_classes=2).headline([0, 0, 1, 1])
0.5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import DataError
from polyfed.kinds import KINDS, LabelForm
from polyfed.metrics.classes import accuracy, balanced_accuracy, brier, class_auroc, ece, nll
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


def is_score(kind: str, name: str) -> bool:
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
        self.interval = cache(lambda level: prediction.interval(level))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prediction, name)


def _positions(prediction: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    return prediction.positions(prediction.label), prediction.positions(y)


def _pairs(y: ArrayLike) -> np.ndarray:
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
        weighted_mean = float(value @ n / n.sum())
        made[name] = Pooled(float(value.mean()), float(value.std()), weighted_mean, len(value), int(n.sum()))
    return made


@dataclass(frozen=True, eq=False)
class Guess:
    """A number, or the probabilities of classes, that is guessed for every row alike."""

    value: float | np.ndarray

    @classmethod
    def of(cls, kind: str, y: ArrayLike, *, n_classes: int | None = None, agreed: float | None = None) -> Guess | None:
        """The guess of a client with these training labels (numbers, pairs, or positions of classes); None without any.

        A client without labels guesses the mean of all clients, if they have `agreed` on it.
        """
        y = np.asarray(y, dtype=np.float64)
        if n_classes is not None:
            # One more observation, shared by all classes: what was never seen here is unlikely, not impossible.
            count = np.bincount(y.astype(np.intp), minlength=n_classes)
            return cls((count + 1 / n_classes) / (len(y) + 1))
        if len(y) == 0:
            return None if agreed is None else cls(float(agreed))
        return cls(float(y[:, 0].sum() / y[:, 1].sum() if y.ndim == 2 else y.mean()))

    def headline(self, y: ArrayLike) -> float:
        """The metric that is shown first: the accuracy of the most frequent class, or the rmse of the mean."""
        y = np.asarray(y)
        if isinstance(self.value, np.ndarray):
            return accuracy(np.full(len(y), self.value.argmax()), y)
        return rmse(np.full(len(y), self.value), observed(y))

    def skill(self, scores: Mapping[str, float], y: ArrayLike) -> float | None:
        """Of a model with these scores on the same labels; None where the guess makes no error at all."""
        y = np.asarray(y)
        if isinstance(self.value, np.ndarray):
            mine, guessed = scores["brier"], brier(np.tile(self.value, (len(y), 1)), y)
        else:
            of_guess = self.headline(y)  # products: a power would raise where this is endless
            mine, guessed = scores["rmse"] * scores["rmse"], of_guess * of_guess
        return float(1 - mine / guessed) if guessed > 0 else None


def observed(y: Any) -> Any:
    """Labels as numbers: those that are pairs, as the share of successes."""
    return y[:, 0] / y[:, 1] if np.ndim(y) == 2 else y
