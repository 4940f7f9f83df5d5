"""From a library's model to predictions of a task: what is asked of it for each kind, and how sure it is.

A regression has the spread of the model itself where it states one, and of out-of-fold residuals otherwise. Probabilities are
mixed with the frequencies of the classes as if these were one more label: a forest whose trees agree is not certain, and
without it its log loss would be endless.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from polyfed.data import LabelCodec
from polyfed.kinds import LabelForm
from polyfed.methods.rivals.inputs import Inputs
from polyfed.methods.supervised import LEAST_NOISE, supervision_of
from polyfed.modelling.rows import prediction_of
from polyfed.predictions import Prediction

if TYPE_CHECKING:
    from polyfed.methods.rivals.base import Rival

Numbers = Callable[[Inputs], tuple[np.ndarray, np.ndarray | None]]
Classes = Callable[[Inputs], np.ndarray]
Rates = Callable[[Inputs], np.ndarray]
Weights = np.ndarray | None  # of labels; None if they count alike
Fit = Callable[["Rival", Inputs, np.ndarray, LabelCodec, int, Weights], Callable[[Inputs], Prediction]]

FOLDS = 3
LEAST_RATE = 1e-6  # in units of the typical count


def fit_task(
    rival: Rival, x: Inputs, y: np.ndarray, codec: LabelCodec, seed: int, weights: Weights = None
) -> Callable[[Inputs], Prediction]:
    """The rival's model of one task, from its coded labels y at x; a guess if there are none."""
    return _FITS[codec.task.form](rival, x, y, codec, seed, weights)


def folds(n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows to learn from, rows to predict), each row predicted once."""
    order = np.random.default_rng(seed).permutation(n)
    held = [order[i::FOLDS] for i in range(FOLDS)]
    return [(np.setdiff1d(order, out), out) for out in held]


# ---- numbers -------------------------------------------------------------------------------------------------------------


def _numbers(
    rival: Rival, x: Inputs, y: np.ndarray, codec: LabelCodec, seed: int, weights: Weights
) -> Callable[[Inputs], Prediction]:
    model = _fit_numbers(rival, x, y, weights, seed)
    states_one = len(x) and model(x.take(np.zeros(1, dtype=np.int64)))[1] is not None
    fixed = None if states_one else _spread(rival, x, y, weights, seed)

    def predict(new: Inputs) -> Prediction:
        mean, std = model(new)
        std = np.full(len(new), fixed) if std is None else std
        return _written(mean, np.maximum(std, LEAST_NOISE**0.5), codec)

    return predict


def _fit_numbers(rival: Rival, x: Inputs, y: np.ndarray, weights: Weights, seed: int) -> Numbers:
    if len(y) < 3 or np.ptp(y) == 0.0:  # no spread to explain
        mean = float(np.average(y, weights=weights)) if len(y) else 0.0
        return lambda new: (np.full(len(new), mean), None)
    return rival.fit_numbers(x, y, weights, seed)


def _spread(rival: Rival, x: Inputs, y: np.ndarray, weights: Weights, seed: int) -> float:
    """The root mean square of out-of-fold residuals; of labels about their mean where they are too few for folds."""
    if len(y) < 2:
        return 1.0  # the federation's spread, in coded units
    if len(y) < 3 * FOLDS:
        return float(y.std(ddof=1))
    left = np.empty(len(y))
    for learn, out in folds(len(y), seed):
        model = _fit_numbers(rival, x.take(learn), y[learn], _some(weights, learn), seed)
        left[out] = y[out] - model(x.take(out))[0]
    return float(np.sqrt(np.average(left**2, weights=weights)))


def _written(mean: np.ndarray, std: np.ndarray, codec: LabelCodec) -> Prediction:
    """In the user's units. Student's t is of the same spread; with two degrees of freedom or fewer it has none, and the scale
    stands in."""
    dof = codec.task.dof
    scale = std * np.sqrt((dof - 2) / dof) if dof > 2 else std
    said = {"noise_std": std, "scale": scale, "dof": dof}
    return prediction_of(codec, mean[:, None], np.zeros((len(mean), 1)), said)


# ---- classes -------------------------------------------------------------------------------------------------------------


def _classes(
    rival: Rival, x: Inputs, y: np.ndarray, codec: LabelCodec, seed: int, weights: Weights, *, binary: bool
) -> Callable[[Inputs], Prediction]:
    positions = ((y + 1) / 2 if binary else y).astype(np.int64)
    counted = np.ones(len(y)) if weights is None else weights
    proba = _probabilities(rival, x, positions, counted, len(codec.classes or ()), seed)

    def predict(new: Inputs) -> Prediction:
        logs = np.log(proba(new))
        outputs = logs[:, 1:] - logs[:, :1] if binary else logs
        return supervision_of(codec).predict(outputs, 0.0, codec)

    return predict


def _shares(
    rival: Rival, x: Inputs, y: np.ndarray, codec: LabelCodec, seed: int, weights: Weights
) -> Callable[[Inputs], Prediction]:
    """Successes and failures as rows of two classes, each with its number as weight."""
    pairs = y.reshape(-1, 2)
    counted = np.concatenate([pairs[:, 1] - pairs[:, 0], pairs[:, 0]])
    counted = counted if weights is None else counted * np.tile(weights, 2)
    some = counted > 0
    twice = x.take(np.tile(np.arange(len(pairs)), 2)[some])
    sides = np.repeat([0, 1], len(pairs))[some]
    proba = _probabilities(rival, twice, sides, counted[some], 2, seed)

    def predict(new: Inputs) -> Prediction:
        logs = np.log(proba(new))
        return supervision_of(codec).predict(logs[:, 1:] - logs[:, :1], 0.0, codec)

    return predict


def _probabilities(
    rival: Rival, x: Inputs, y: np.ndarray, weights: np.ndarray, n_classes: int, seed: int
) -> Callable[[Inputs], np.ndarray]:
    """Probabilities of all classes, those that were never seen included: none is zero."""
    n = weights.sum()
    often = (np.bincount(y, weights, n_classes) + 0.5) / (n + 0.5 * n_classes)
    present = np.unique(y)
    if len(present) < 2:
        return lambda new: np.tile(often, (len(new), 1))
    equal = None if np.all(weights == 1.0) else weights
    model = rival.fit_classes(x, np.searchsorted(present, y), equal, seed)

    def proba(new: Inputs) -> np.ndarray:
        found = np.zeros((len(new), n_classes))
        found[:, present] = model(new)
        return (n * found + often) / (n + 1.0)

    return proba


# ---- counts --------------------------------------------------------------------------------------------------------------


def _counts(
    rival: Rival, x: Inputs, y: np.ndarray, codec: LabelCodec, seed: int, weights: Weights
) -> Callable[[Inputs], Prediction]:
    model = _fit_rates(rival, x, y, weights, codec.scale, seed)
    how, noise = supervision_of(codec), 1.0
    if len(y) >= 3 * FOLDS:
        rates = np.empty(len(y))
        for learn, out in folds(len(y), seed):
            model_of_some = _fit_rates(rival, x.take(learn), y[learn], _some(weights, learn), codec.scale, seed)
            rates[out] = model_of_some(x.take(out))
        counted = None if weights is None else torch.from_numpy(weights)
        excess, count = how.spread(torch.from_numpy(_log(rates, codec)), torch.from_numpy(y), codec, counted)
        noise = excess / count
    return lambda new: how.predict(_log(model(new), codec), noise, codec)


def _fit_rates(rival: Rival, x: Inputs, y: np.ndarray, weights: Weights, typical: float, seed: int) -> Rates:
    if len(y) < 3 or np.ptp(y) == 0.0:
        counted = np.ones(len(y)) if weights is None else weights
        rate = (counted @ y + typical) / (counted.sum() + 1.0)
        return lambda new: np.full(len(new), rate)
    return rival.fit_rates(x, y, weights, seed)


def _some(weights: Weights, rows: np.ndarray) -> Weights:
    return None if weights is None else weights[rows]


def _log(rates: np.ndarray, codec: LabelCodec) -> np.ndarray:
    return np.log(np.maximum(rates / codec.scale, LEAST_RATE))[:, None]


_FITS: dict[LabelForm, Fit] = {
    LabelForm.NUMBER: _numbers,
    LabelForm.BINARY: partial(_classes, binary=True),
    LabelForm.CLASS: partial(_classes, binary=False),
    LabelForm.COUNT: _counts,
    LabelForm.PAIR: _shares,
}
