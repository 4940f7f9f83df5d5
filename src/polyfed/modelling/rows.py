"""From coded labels to a Gaussian process and back: likelihoods, rows, and predictions in the units of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from polyfed.data import ClientData, LabelCodec
from polyfed.errors import UnknownNameError, nearest
from polyfed.gp import LatentPrediction, Likelihood, Prior, Rows, likelihood_for
from polyfed.kinds import KINDS
from polyfed.predictions import Prediction, Predictions


def rows_of(data: ClientData, likelihoods: Mapping[str, Likelihood]) -> Rows:
    seen = {name: (torch.from_numpy(at), torch.from_numpy(y)) for name, (at, y) in data.labels.items()}
    weights = {name: torch.from_numpy(weight) for name, weight in data.weights.items()}
    return Rows.of(torch.from_numpy(data.x), seen, likelihoods, weights)


def likelihoods_of(codecs: Mapping[str, LabelCodec], bound: str) -> dict[str, Likelihood]:
    return {name: likelihood_of(codec, bound) for name, codec in codecs.items()}


def likelihood_of(codec: LabelCodec, bound: str = "polya-gamma") -> Likelihood:
    """The likelihood of a task, with what its labels said of it."""
    task, n_classes = codec.task, len(codec.classes or ())
    return likelihood_for(
        task.kind,
        n_classes=n_classes,
        likelihood=task.likelihood,
        temperature=task.temperature,
        dof=task.dof,
        typical=codec.scale,
        power=2.0 / n_classes if task.power == "2/K" else float(task.power),
        bound=bound,
    )


def read_out(
    latents: LatentPrediction,
    prior: Prior,
    likelihoods: Mapping[str, Likelihood],
    codecs: Mapping[str, LabelCodec],
    tasks: Sequence[str] | None = None,
) -> Predictions:
    """Predictions of the tasks named (all by default), with or without labels of their own."""
    predictions = {}
    for name in codecs if tasks is None else tasks:
        if name not in codecs:
            raise UnknownNameError(f"task {name!r} is unknown", where="predict", remedy=nearest(name, codecs))
        noise = prior.noise_of(name)
        mean, cov = latents.of(name)
        said = likelihoods[name].readout(mean, cov, None if noise is None else noise.detach())
        std = cov.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
        predictions[name] = prediction_of(codecs[name], mean.detach().numpy(), std.detach().numpy(), said)
    return Predictions(predictions)


def prediction_of(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Mapping[str, object]) -> Prediction:
    """A task's prediction from the moments of its latent functions (N, outputs) and what a likelihood says of them."""
    numbers = {key: value.detach().numpy() if isinstance(value, torch.Tensor) else value for key, value in said.items()}
    return KINDS[codec.task.kind].part("prediction").of_latents(codec, mean, std, numbers)
