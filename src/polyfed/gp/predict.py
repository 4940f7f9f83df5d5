"""The predictive distribution: what all rows of all tasks say of the latent functions at new inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

CHUNK = 4096  # inputs predicted at once
Q = TypeVar("Q", contravariant=True)  # a posterior, of the model's own kind


@dataclass(frozen=True)
class LatentPrediction:
    """q(g(x)) at each of N inputs: `mean` (N, B) and `cov` (N, B, B) over the B latent functions.

    `mixing` says how the outputs of each task follow from them: task → W (n_outputs, B). `mu` is their prior mean,
    task → (N, n_outputs); empty for zero.
    """

    mean: Float[Tensor, "N B"]
    cov: Float[Tensor, "N B B"]
    mixing: Mapping[str, Tensor]
    mu: Mapping[str, Tensor] = field(default_factory=dict)

    def outputs(self, W: Float[Tensor, "T B"]) -> tuple[Float[Tensor, "N T"], Float[Tensor, "N T T"]]:
        """Mean (N, T) and covariance (N, T, T) of W g(x): of outputs, less their prior mean."""
        return self.mean @ W.mT, W @ self.cov @ W.mT

    def of(self, task: str) -> tuple[Float[Tensor, "N O"], Float[Tensor, "N O O"]]:
        """Mean and covariance of the outputs of one task."""
        mean, cov = self.outputs(self.mixing[task])
        return mean + self.mu[task] if self.mu else mean, cov


class Predicts(Protocol[Q]):
    """A model that knows how its posterior goes on to new inputs."""

    def predict(self, q: Q, x: Tensor) -> LatentPrediction: ...


def predict_latents(model: Predicts[Q], q: Q, x: Float[Tensor, "N D"]) -> LatentPrediction:
    """q(g(x)) from all rows of all tasks at once, some thousand inputs at a time."""
    with torch.no_grad():
        parts = [model.predict(q, part) for part in x.split(CHUNK)]
        return LatentPrediction(
            torch.cat([part.mean for part in parts]),
            torch.cat([part.cov for part in parts]),
            parts[0].mixing,
            {task: torch.cat([part.mu[task] for part in parts]) for task in parts[0].mu},
        )
