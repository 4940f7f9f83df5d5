"""Rows as rivals see them, and from a library's model to predictions of a task: what is asked of it, and how sure it is.

A regression has the spread of the model itself where it states one, and of out-of-fold residuals otherwise. Probabilities are
mixed with the frequencies of the classes as if these were one more label: a forest whose trees agree is not certain, and
without it its log loss would be endless.

>>> x = Inputs.of(np.array([[0.5, 3.0], [0.1, 3.0], [0.2, 7.0]]), named=True)
>>> known = Clients.of(x)
>>> known.positions(Inputs.of(np.array([[0.0, 7.0], [0.0, 8.0]]), named=True))
array([ 1., nan])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from polyfed.data import LabelCodec
from polyfed.kinds import LabelForm
from polyfed.methods.supervised import LEAST_NOISE, outputs_of_scores, supervision_of
from polyfed.modelling.rows import prediction_of
from polyfed.predictions import Prediction

if TYPE_CHECKING:
    from polyfed.methods.rivals.base import Rival


MOST = 250  # scikit-learn's trees take 255 categories; clients beyond these, the smallest, are one category


@dataclass(frozen=True, eq=False)
class Inputs:
    """Encoded features (n, D), and the position of each row's client, or None where there is one client alone."""

    features: np.ndarray
    client: np.ndarray | None

    @classmethod
    def of(cls, x: np.ndarray, *, named: bool) -> Inputs:
        """With `named`, the last column is the client's position."""
        return cls(x[:, :-1], x[:, -1]) if named else cls(x, None)

    def take(self, rows: np.ndarray) -> Inputs:
        return Inputs(self.features[rows], None if self.client is None else self.client[rows])

    def __len__(self) -> int:
        return len(self.features)


Predicted = Callable[[Inputs], np.ndarray]  # probabilities of classes, or rates, at new inputs
Numbers = Callable[[Inputs], tuple[np.ndarray, np.ndarray | None]]  # mean and, if the model has one, standard deviation


@dataclass(frozen=True, eq=False)
class Labelled:
    """Coded labels y at x, their weights, None if all count alike, and the seed of what is learned from them."""

    x: Inputs
    y: np.ndarray
    weights: np.ndarray | None
    seed: int

    def take(self, rows: np.ndarray) -> Labelled:
        return Labelled(
            self.x.take(rows), self.y[rows], None if self.weights is None else self.weights[rows], self.seed
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counted(self) -> np.ndarray:
        return np.ones(len(self)) if self.weights is None else self.weights


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients that training rows are of, in order; others are not known."""

    known: np.ndarray

    @classmethod
    def of(cls, x: Inputs) -> Clients:
        values, sizes = np.unique(np.zeros(0) if x.client is None else x.client, return_counts=True)
        return cls(np.sort(values[np.argsort(-sizes, kind="stable")[:MOST]]))

    def positions(self, x: Inputs) -> np.ndarray:
        """Of each row's client among those known, NaN for others."""
        if x.client is None or not len(self.known):
            return np.full(len(x), np.nan)
        at = np.minimum(np.searchsorted(self.known, x.client), len(self.known) - 1)
        return np.where(self.known[at] == x.client, at.astype(float), np.nan)

    def one_hot(self, x: Inputs) -> np.ndarray:
        """(n, clients), a row of zeros for a client that is not known."""
        return (self.positions(x)[:, None] == np.arange(len(self.known))).astype(float)


TaskPredictor = Callable[[Inputs], Prediction]
FOLDS = 3
LEAST_RATE = 1e-6  # in units of the typical count


def fit_task(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    """The rival's model of one task; a guess if there are no labels."""
    return _FITS[codec.task.form](rival, rows, codec)


def folds(n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows to learn from, rows to predict), each row predicted once."""
    order = np.random.default_rng(seed).permutation(n)
    held = [order[i::FOLDS] for i in range(FOLDS)]
    return [(np.setdiff1d(order, out), out) for out in held]


def _out_of_fold(fit: Callable[[Labelled], Predicted], rows: Labelled) -> np.ndarray:
    """What is predicted of each row by a model of the other folds."""
    found = np.empty(len(rows))
    for learn, out in folds(len(rows), rows.seed):
        found[out] = fit(rows.take(learn))(rows.x.take(out))
    return found


def _numbers(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    model = _fit_numbers(rival, rows)
    states_one = len(rows) and model(rows.x.take(np.zeros(1, dtype=np.int64)))[1] is not None
    fixed = None if states_one else _spread(rival, rows)
    dof = codec.task.dof

    def predict(new: Inputs) -> Prediction:
        mean, std = model(new)
        std = np.maximum(np.full(len(new), fixed) if std is None else std, LEAST_NOISE**0.5)
        # Student's t of the same spread; with two degrees of freedom or fewer it has none, and the scale stands in.
        scale = std * np.sqrt((dof - 2) / dof) if dof > 2 else std
        said = {"noise_std": std, "scale": scale, "dof": dof}
        return prediction_of(codec, mean[:, None], np.zeros((len(mean), 1)), said)

    return predict


def _fit_numbers(rival: Rival, rows: Labelled) -> Numbers:
    if len(rows) < 3 or np.ptp(rows.y) == 0.0:  # no spread to explain
        mean = float(np.average(rows.y, weights=rows.weights)) if len(rows) else 0.0
        return lambda new: (np.full(len(new), mean), None)
    return rival.fit_numbers(rows)


def _spread(rival: Rival, rows: Labelled) -> float:
    """The root mean square of out-of-fold residuals; of labels about their mean where they are too few for folds."""
    if len(rows) < 2:
        return 1.0  # the federation's spread, in coded units
    if len(rows) < 3 * FOLDS:
        return float(rows.y.std(ddof=1))

    def mean_of(some: Labelled) -> Predicted:
        model = _fit_numbers(rival, some)
        return lambda new: model(new)[0]

    left = rows.y - _out_of_fold(mean_of, rows)
    return float(np.sqrt(np.average(left**2, weights=rows.weights)))


def _sides(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    """−1 and 1 as two classes."""
    return _classes(rival, replace(rows, y=(rows.y + 1) / 2), codec)


def _shares(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    """Successes and failures as rows of two classes, each with its number as weight."""
    pairs = rows.y.reshape(-1, 2)
    numbers = np.concatenate([pairs[:, 1] - pairs[:, 0], pairs[:, 0]]) * np.tile(rows.counted, 2)
    both = rows.x.take(np.tile(np.arange(len(pairs)), 2))
    twice = Labelled(both, np.repeat([0, 1], len(pairs)), numbers, rows.seed)
    return _classes(rival, twice.take(np.flatnonzero(numbers > 0)), codec)


def _classes(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    proba = _probabilities(rival, replace(rows, y=rows.y.astype(np.int64)), len(codec.classes or ()) or 2)

    def predict(new: Inputs) -> Prediction:
        outputs = outputs_of_scores(torch.from_numpy(np.log(proba(new))), codec)
        return supervision_of(codec).predict(outputs.numpy(), 0.0, codec)

    return predict


def _probabilities(rival: Rival, rows: Labelled, n_classes: int) -> Predicted:
    """Probabilities of all classes, those that were never seen included: none is zero."""
    weights, present = rows.counted, np.unique(rows.y)
    n = weights.sum()
    often = (np.bincount(rows.y, weights, n_classes) + 0.5) / (n + 0.5 * n_classes)
    if len(present) < 2:
        return lambda new: np.tile(often, (len(new), 1))
    equal = None if np.all(weights == 1.0) else weights
    model = rival.fit_classes(replace(rows, y=np.searchsorted(present, rows.y), weights=equal))

    def proba(new: Inputs) -> np.ndarray:
        found = np.zeros((len(new), n_classes))
        found[:, present] = model(new)
        return (n * found + often) / (n + 1.0)

    return proba


def _counts(rival: Rival, rows: Labelled, codec: LabelCodec) -> TaskPredictor:
    def fit(some: Labelled) -> Predicted:
        if len(some) < 3 or np.ptp(some.y) == 0.0:
            rate = (some.counted @ some.y + codec.scale) / (some.counted.sum() + 1.0)
            return lambda new: np.full(len(new), rate)
        return rival.fit_rates(some)

    def log(rates: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(rates / codec.scale, LEAST_RATE))[:, None]

    model, how, noise = fit(rows), supervision_of(codec), 1.0
    if len(rows) >= 3 * FOLDS:
        outputs, y, counted = map(torch.from_numpy, (log(_out_of_fold(fit, rows)), rows.y, rows.counted))
        excess, count = how.spread(outputs, y, codec, counted)
        noise = excess / count
    return lambda new: how.predict(log(model(new)), noise, codec)


_FITS: dict[LabelForm, Callable[[Rival, Labelled, LabelCodec], TaskPredictor]] = {
    LabelForm.NUMBER: _numbers,
    LabelForm.BINARY: _sides,
    LabelForm.CLASS: _classes,
    LabelForm.COUNT: _counts,
    LabelForm.PAIR: _shares,
}
