"""Coded labels as a Gaussian process has them: a likelihood for each task, and rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from polyfed.data import ClientData, LabelCodec
from polyfed.gp import Likelihood, Rows, likelihood_for


def rows_of(data: ClientData, likelihoods: Mapping[str, Likelihood]) -> Rows:
    """The labels of a client as rows of its model."""
    seen = {name: (torch.from_numpy(at), torch.from_numpy(y)) for name, (at, y) in data.labels.items()}
    weights = {name: torch.from_numpy(weight) for name, weight in data.weights.items()}
    return Rows.of(torch.from_numpy(data.x), seen, likelihoods, weights)


def likelihoods_of(codecs: Mapping[str, LabelCodec], bound: str) -> dict[str, Likelihood]:
    """The likelihood of each task."""
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
