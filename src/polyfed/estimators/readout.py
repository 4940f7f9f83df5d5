"""From the latent predictive to what users read: one prediction object for each task, in their units and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from polyfed.data import LabelCodec
from polyfed.errors import UnknownNameError, nearest
from polyfed.gp import LatentPrediction, Likelihood, Prior
from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    Prediction,
    Predictions,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)

# (codec, latent mean (N, T), latent sd (N, T), what the likelihood's read-out said) -> prediction
Maker = Callable[[LabelCodec, np.ndarray, np.ndarray, dict[str, np.ndarray]], Prediction]


def _regression(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    f_mean, f_std = codec.shift + codec.scale * mean[:, 0], codec.scale * std[:, 0]
    return RegressionPrediction(f_mean, f_std, codec.scale * said["noise_std"])


def _robust(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    f_mean, f_std = codec.shift + codec.scale * mean[:, 0], codec.scale * std[:, 0]
    return RobustPrediction(f_mean, f_std, codec.scale * said["scale"], said["dof"])


def _binary(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    return BinaryPrediction(said["proba"], codec.classes or (), mean[:, 0], std[:, 0])


def _multiclass(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    return MulticlassPrediction(said["proba"], codec.classes or (), mean, std)


def _proportion(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    return ProportionPrediction(mean[:, 0], std[:, 0], said["mean"])


def _count(codec: LabelCodec, mean: np.ndarray, std: np.ndarray, said: dict[str, np.ndarray]) -> Prediction:
    # The latent of a count is shown as the logarithm of its rate.
    return CountPrediction(mean[:, 0] + said["log_typical"], std[:, 0], said["dispersion"])


MAKERS: dict[str, Maker] = {
    "regression": _regression,
    "robust": _robust,
    "binary": _binary,
    "multiclass": _multiclass,
    "proportion": _proportion,
    "count": _count,
}


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
        codec = codecs[name]
        numbers = {key: _numpy(value) for key, value in said.items()}
        predictions[name] = MAKERS[codec.task.kind](codec, _numpy(mean), _numpy(std), numbers)
    return Predictions(predictions)


def _numpy(value: Tensor) -> np.ndarray:
    return value.detach().numpy()
