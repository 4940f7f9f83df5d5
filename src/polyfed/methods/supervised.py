"""Kinds of tasks for methods that are not Gaussian processes: outputs, loss, noise and prediction of each.

A network answers with outputs f (rows, outputs) in coded units, as the latent functions of a Gaussian process are, but
without their uncertainty: predictions have `latent_std` zero, and a noise that is estimated from training residuals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, pad, softplus

from polyfed.data import ClientData, LabelCodec
from polyfed.kinds import KINDS, LabelForm
from polyfed.modelling.rows import likelihood_of, prediction_of
from polyfed.predictions import Prediction

LEAST_NOISE = 1e-6  # of a variance in scaled units: a network that has learned its labels by heart is not certain


@dataclass(frozen=True)
class Supervision:
    """How outputs are trained and read for one kind of task.

    Attributes:
        losses: (outputs, coded labels, codec) → the loss of each row.
        says: (outputs, noise, codec) → what a likelihood would say of y there, for the prediction.
        noise: (outputs, coded labels, codec, weight of each row) → (sum, count) of which the ratio is the noise; None for
            kinds without.
        counts_labels: whether the count of the noise is the number of labels.
    """

    losses: Callable[[Tensor, Tensor, LabelCodec], Tensor]
    says: Callable[[np.ndarray, float, LabelCodec], Mapping[str, object]]
    noise: Callable[[Tensor, Tensor, LabelCodec, Tensor], tuple[float, float]] | None = None
    counts_labels: bool = True

    def loss(self, f: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor | None = None) -> Tensor:
        """The mean loss; with weights, whose mean over all of a client's labels is one, each row's counts so much."""
        losses = self.losses(f, y, codec)
        return losses.mean() if weights is None else (weights * losses).mean()

    def spread(self, f: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor | None = None) -> tuple[float, float]:
        """Sum and count of the noise; zeros for kinds without."""
        weights = torch.ones(len(f), dtype=torch.float64) if weights is None else weights
        return (0.0, 0.0) if self.noise is None else self.noise(f, y, codec, weights)

    def predict(self, f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
        """What is said of rows with these outputs."""
        return prediction_of(codec, f, np.zeros_like(f), self.says(f, noise, codec))


def supervision_of(codec: LabelCodec) -> Supervision:
    """That of the task's kind; a kind that brings none is trained and read by its likelihood."""
    return KINDS[codec.task.kind].part("supervision") or _BY_LIKELIHOOD


def target_of(y: Tensor, codec: LabelCodec) -> Tensor:
    """Outputs (rows, outputs) that would say just these coded labels, for least squares. Classes are ±1 or one-hot. Counts and
    proportions are on the scale of their outputs, with ½ added, which keeps zero finite and makes the expected log of a Poisson
    count nearly the log of its mean, from two on."""
    form = codec.task.form
    if form is LabelForm.CLASS:
        return groups_of(y, codec)
    if form is LabelForm.COUNT:
        return ((y[:, None] + 0.5) / codec.scale).log()
    if form is LabelForm.PAIR:
        return ((y[:, :1] + 0.5) / (y[:, 1:] - y[:, :1] + 0.5)).log()
    return y[:, None]


def with_one(h: Tensor) -> Tensor:
    """Features and a constant."""
    return pad(h, (0, 1), value=1.0)


def n_outputs(codec: LabelCodec) -> int:
    return likelihood_of(codec).n_outputs


class LabelledRows(NamedTuple):
    """Inputs and coded labels of a task, and how much each counts; None if all of the client's count alike."""

    x: Tensor
    y: Tensor
    codec: LabelCodec
    weights: Tensor | None

    @property
    def counted(self) -> Tensor:
        return torch.ones(len(self.y), dtype=torch.float64) if self.weights is None else self.weights

    def loss(self, f: Tensor) -> Tensor:
        return supervision_of(self.codec).loss(f, self.y, self.codec, self.weights)

    def spread(self, f: Tensor) -> tuple[float, float]:
        return supervision_of(self.codec).spread(f, self.y, self.codec, self.weights)


def rows_of(data: ClientData, task: str, positions: np.ndarray | slice = slice(None)) -> LabelledRows:
    """Some of a client's labels of a task."""
    (at, y), weights = data.labels[task], data.weights.get(task)
    counted = None if weights is None else torch.from_numpy(weights[positions])
    return LabelledRows(
        torch.from_numpy(data.x[at[positions]]), torch.from_numpy(y[positions]), data.codecs[task], counted
    )


def groups_of(y: Tensor, codec: LabelCodec) -> Tensor:
    """One-hot classes; without classes all rows are of one group."""
    if not codec.classes:
        return torch.ones(len(y), 1, dtype=torch.float64)
    position = y > 0 if codec.task.form is LabelForm.BINARY else y
    return one_hot(position.long(), len(codec.classes)).to(torch.float64)


def outputs_of_scores(scores: Tensor, codec: LabelCodec) -> Tensor:
    """A score for each class, in the last dimension, as outputs: one that separates two classes is their difference."""
    return scores if n_outputs(codec) == scores.shape[-1] else scores[..., 1:] - scores[..., :1]


def _squares(f: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor) -> tuple[float, float]:
    return float((weights * (y - f[:, 0]).square()).sum()), float(weights.sum())


def _student_squares(f: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor) -> tuple[float, float]:
    """σ² of Student's t: outliers count less, the less the further out they are."""
    squares, nu, n = (y - f[:, 0]).square(), codec.task.dof, weights.sum()
    sigma2 = ((weights * squares).sum() / n).clamp_min(LEAST_NOISE)
    for _ in range(20):
        sigma2 = ((weights * (nu + 1) * squares / (nu + squares / sigma2)).sum() / n).clamp_min(LEAST_NOISE)
    return float(sigma2 * n), float(n)


def _excess(f: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor) -> tuple[float, float]:
    """1/ρ of a negative binomial: what (y − μ)² is beyond μ, relative to μ²."""
    mean = codec.scale * f[:, 0].exp()
    excess = (weights * ((y - mean).square() - mean)).sum().clamp_min(0.0)
    return float(excess), float((weights * mean.square()).sum())


def _sigmoid(f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-f[:, 0]))


def _softmax(f: np.ndarray) -> np.ndarray:
    e = np.exp(f - f.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _std(noise: float) -> float:
    return math.sqrt(max(noise, LEAST_NOISE))


REGRESSION = Supervision(
    lambda f, y, _: 0.5 * (y - f[:, 0]).square(), lambda f, noise, _: {"noise_std": _std(noise)}, _squares
)
ROBUST = Supervision(
    lambda f, y, c: 0.5 * (c.task.dof + 1) * torch.log1p((y - f[:, 0]).square() / c.task.dof),
    lambda f, noise, c: {"scale": _std(noise), "dof": c.task.dof},
    _student_squares,
)
BINARY = Supervision(lambda f, y, _: softplus(-y * f[:, 0]), lambda f, *_: {"proba": _sigmoid(f)})
MULTICLASS = Supervision(
    lambda f, y, _: cross_entropy(f, y.long(), reduction="none"), lambda f, *_: {"proba": _softmax(f)}
)
# Poisson, in units of the typical count: the loss of a thousand steps must not drown all others.
COUNT = Supervision(
    lambda f, y, c: f[:, 0].exp() - y / c.scale * f[:, 0],
    lambda f, noise, c: {"log_typical": np.log(c.scale), "dispersion": 1.0 / max(noise, 1e-6)},
    _excess,
    counts_labels=False,
)
PROPORTION = Supervision(
    lambda f, y, _: softplus(f[:, 0]) - y[:, 0] / y[:, 1] * f[:, 0], lambda f, *_: {"mean": _sigmoid(f)}
)


# ---- kinds that bring a likelihood alone ----------------------------------------------------------------------------

_CERTAIN = 1e-12  # variance of an output: with zero, the root of a second moment has no gradient at zero


def _bound(f: Tensor, y: Tensor, codec: LabelCodec) -> Tensor:
    """−log p(y | f): for an f that is certain, a likelihood's local bound is just that."""
    likelihood = likelihood_of(codec)
    m = (likelihood.pattern(y) @ f.to(torch.float64)[..., None])[..., 0]
    return -likelihood.local_bound(y, m, torch.full_like(m, _CERTAIN), _noise_of(codec))


def _readout(f: np.ndarray, noise: float, codec: LabelCodec) -> Mapping[str, object]:
    outputs = torch.from_numpy(f).to(torch.float64)
    certain = torch.zeros(*f.shape, f.shape[1], dtype=torch.float64)
    return likelihood_of(codec).readout(outputs, certain, _noise_of(codec))


def _noise_of(codec: LabelCodec) -> Tensor | None:
    start = likelihood_of(codec).initial_noise
    return None if start is None else torch.tensor(start, dtype=torch.float64)


_BY_LIKELIHOOD = Supervision(_bound, _readout)
