"""Inputs as the shared function sees them at this stage of a run: scores, a constant, and once it is bent, curved features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.data import LabelCodec
from polyfed.errors import DataError
from polyfed.gp.components import Components
from polyfed.gp.weight_space import N_POINTS, Coregionalisation, curved
from polyfed.methods.gp.model import GPModel, ModelConfig
from polyfed.methods.gp.wide.weight_states import Curve, Served
from polyfed.modelling.rows import likelihoods_of
from polyfed.modelling.sparsity import Sparsity


def model_of(codecs: Mapping[str, LabelCodec], bound: str) -> GPModel:
    """Likelihoods, and a prior for the noise: its kernels see nothing, one latent for each output."""
    outputs = sum(likelihood.n_outputs for likelihood in likelihoods_of(codecs, bound).values())
    return ModelConfig(("linear",) * outputs, False, bound, Sparsity(None, "greedy", 1e-3, seed=0)).model(codecs, 1)


@dataclass(frozen=True, eq=False)
class Features:
    n_components: int
    n_outputs: int
    components: Components | None  # None before they are found, and of a client that received them in an earlier round
    curve: Curve | None
    has_personal: bool = True

    @classmethod
    def of(cls, known: Served, *, personal: bool) -> Features:
        """As a state of the server, or what it sent, has them."""
        T, found = known.shared.shape[-1], 0
        if known.sums is not None:
            found = len(known.sums.shift) // T - 1 - (0 if known.curve is None else T * N_POINTS)
        return cls(found, T, known.components, known.curve, personal)

    @property
    def is_bent(self) -> bool:
        return self.curve is not None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Components, the constant, curved features."""
        bent = self.n_outputs * N_POINTS if self.is_bent else 0
        return self.n_components, 1, bent

    @property
    def personal_sizes(self) -> tuple[int, ...]:
        return self.sizes[:2] if self.has_personal else (0, 0)

    @property
    def n_features(self) -> int:
        return sum(self.sizes)

    def shared(self, B: Tensor) -> Coregionalisation:
        return Coregionalisation(self.sizes, B)

    def personal(self, B: Tensor) -> Coregionalisation:
        return Coregionalisation(self.personal_sizes, B)

    def linear(self, x: Tensor) -> Tensor:
        """Scores and a constant."""
        one = x.new_ones(len(x), 1)
        if not self.n_components:
            return one
        if self.components is None:
            raise DataError(
                "the client no longer has what it received of the principal components",
                where="the client's state",
                remedy="give the client its state back, or start the run again",
            )
        if x.shape[1] != len(self.components.centre):
            what = f"{x.shape[1]} features, and the shared functions have {len(self.components.centre)}"
            raise DataError(what, where="the client's inputs", remedy="give the features that the federation agreed on")
        return torch.cat([self.components.scores(x), one], 1)

    def unseen(self, x: Tensor) -> Tensor:
        """What inputs have beside their scores, squared."""
        return x.new_zeros(len(x)) if self.components is None else self.components.unseen(x)

    def outputs(self, linear: Tensor) -> Tensor:
        """What the linear function said of inputs when it was bent; nothing before."""
        return linear[:, :0] if self.curve is None else linear @ self.curve.weights.mT

    def at_rows(self, linear: Tensor, outputs: Tensor) -> Tensor:
        """All features, given what is to be taken for the outputs there."""
        if self.curve is None:
            return linear
        return torch.cat([linear, curved((outputs - self.curve.mean) / self.curve.spread)], 1)

    def __call__(self, x: Tensor) -> Tensor:
        linear = self.linear(x)
        return self.at_rows(linear, self.outputs(linear))
