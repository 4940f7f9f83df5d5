"""From the latent predictive to what users read: one prediction object for each task, in their units and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyfed.data import LabelCodec
from polyfed.errors import UnknownNameError, nearest
from polyfed.gp import LatentPrediction, Likelihood, Prior
from polyfed.kinds import KINDS
from polyfed.predictions import Prediction, Predictions


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


def prediction_of(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Mapping[str, Any]) -> Prediction:
    """A task's prediction from the moments of its latent functions (N, outputs) and what a likelihood says of them."""
    numbers = {key: value.detach().numpy() if hasattr(value, "detach") else value for key, value in said.items()}
    return KINDS[codec.task.kind].part("prediction").of_latents(codec, mean, std, numbers)
