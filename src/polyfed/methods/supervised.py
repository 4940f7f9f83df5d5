"""Kinds of tasks for methods that are not Gaussian processes: outputs, loss, noise and prediction of each.

A network answers with outputs f (rows, outputs) in coded units, as the latent functions of a Gaussian process are, but
without their uncertainty: predictions have `latent_std` zero, and a noise that is estimated from training residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softplus

from polyfed.data import ClientData, LabelCodec
from polyfed.kinds import LabelForm
from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    Prediction,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)

LEAST_NOISE = 1e-6  # of a variance in scaled units: a network that has learned its labels by heart is not certain


@dataclass(frozen=True)
class Supervision:
    """How outputs are trained and read for one kind of task.

    Attributes:
        losses: (outputs, coded labels, codec) → the loss of each row.
        target: (coded labels, codec) → outputs (rows, outputs) that would say just this, for least squares. Classes are ±1 or
            one-hot. Counts and proportions are on the scale of their outputs, with ½ added, which keeps zero finite and
            makes the expected log of a Poisson count nearly the log of its mean, from two on.
        noise: (outputs, coded labels, codec, weight of each row) → (sum, count) of which the ratio is the noise; None for
            kinds without.
        predict: (outputs, noise, codec) → prediction.
        counts_labels: whether the count of the noise is the number of labels.
    """

    losses: Callable[[Tensor, Tensor, LabelCodec], Tensor]
    target: Callable[[Tensor, LabelCodec], Tensor]
    predict: Callable[[np.ndarray, float, LabelCodec], Prediction]
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


def n_outputs(codec: LabelCodec) -> int:
    return len(codec.classes or ()) if codec.task.form is LabelForm.CLASS else 1


def rows_of(data: ClientData, task: str, positions: np.ndarray | slice) -> tuple[Tensor, Tensor, LabelCodec]:
    """Inputs, coded labels and codec of some labels of a task."""
    at, y = data.seen[task]
    return torch.from_numpy(data.x[at[positions]]), torch.from_numpy(y[positions]), data.codecs[task]


def weights_of(data: ClientData, task: str, positions: np.ndarray | slice) -> Tensor | None:
    """How much some labels of a task count; None if all of the client's count alike."""
    return torch.from_numpy(data.weights[task][positions]) if task in data.weights else None


def groups_of(y: Tensor, codec: LabelCodec) -> Tensor:
    """One-hot classes; without classes all rows are of one group."""
    if not codec.classes:
        return torch.ones(len(y), 1, dtype=torch.float64)
    position = y > 0 if codec.task.form is LabelForm.BINARY else y
    return one_hot(position.long(), len(codec.classes)).to(torch.float64)


def outputs_of_scores(scores: Tensor, codec: LabelCodec) -> Tensor:
    """A score for each class, in the last dimension, as outputs: one that tells two classes apart is their difference."""
    return scores if n_outputs(codec) == scores.shape[-1] else scores[..., 1:] - scores[..., :1]


def _itself(y: Tensor, codec: LabelCodec) -> Tensor:
    return y[:, None]


def _regression(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    std = codec.scale * np.sqrt(max(noise, LEAST_NOISE))
    return RegressionPrediction(codec.shift + codec.scale * f[:, 0], np.zeros(len(f)), np.full(len(f), std))


def _robust(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    scale = codec.scale * np.sqrt(max(noise, LEAST_NOISE))
    zero = np.zeros(len(f))
    return RobustPrediction(codec.shift + codec.scale * f[:, 0], zero, zero + scale, zero + codec.task.dof)


def _binary(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    return BinaryPrediction(1 / (1 + np.exp(-f[:, 0])), codec.classes or (), f[:, 0], np.zeros(len(f)))


def _multiclass(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    e = np.exp(f - f.max(1, keepdims=True))
    return MulticlassPrediction(e / e.sum(1, keepdims=True), codec.classes or (), f, np.zeros_like(f))


def _count(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    dispersion = 1.0 / max(noise, 1e-6)
    return CountPrediction(f[:, 0] + np.log(codec.scale), np.zeros(len(f)), np.full(len(f), dispersion))


def _proportion(f: np.ndarray, noise: float, codec: LabelCodec) -> Prediction:
    return ProportionPrediction(f[:, 0], np.zeros(len(f)), 1 / (1 + np.exp(-f[:, 0])))


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


SUPERVISION: dict[str, Supervision] = {
    "regression": Supervision(lambda f, y, _: 0.5 * (y - f[:, 0]).square(), _itself, _regression, _squares),
    "robust": Supervision(
        lambda f, y, c: 0.5 * (c.task.dof + 1) * torch.log1p((y - f[:, 0]).square() / c.task.dof),
        _itself,
        _robust,
        _student_squares,
    ),
    "binary": Supervision(lambda f, y, _: softplus(-y * f[:, 0]), _itself, _binary),
    "multiclass": Supervision(lambda f, y, _: cross_entropy(f, y.long(), reduction="none"), groups_of, _multiclass),
    # Poisson, in units of the typical count: the loss of a thousand steps must not drown all others.
    "count": Supervision(
        lambda f, y, c: f[:, 0].exp() - y / c.scale * f[:, 0],
        lambda y, c: ((y[:, None] + 0.5) / c.scale).log(),
        _count,
        _excess,
        counts_labels=False,
    ),
    "proportion": Supervision(
        lambda f, y, _: softplus(f[:, 0]) - y[:, 0] / y[:, 1] * f[:, 0],
        lambda y, _: ((y[:, :1] + 0.5) / (y[:, 1:] - y[:, :1] + 0.5)).log(),
        _proportion,
    ),
}
