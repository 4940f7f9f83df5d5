"""Proportions: k successes of n trials, each with probability sigmoid(f). y holds the pairs (k, n).

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.logistic import bound_named, logistic_bound, logistic_form, logistic_site
from polyfed.gp.quadrature import expected_sigmoid

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class Binomial(Likelihood):
    """κ = k − n/2."""

    def __init__(self, *, bound: str = "polya-gamma", power: float = 1.0) -> None:
        self.local, self.power = bound_named(bound), power

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        k, n = y[:, :1], y[:, 1:]
        return (_log_choose(k, n) + logistic_bound(self.local, k - 0.5 * n, n, m, v))[:, 0]

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        k, n = y[:, :1], y[:, 1:]
        return logistic_site(self.local, k - 0.5 * n, n, m, v)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        return {"mean": expected_sigmoid(mean[:, 0], cov[:, 0, 0])}

    def compiled(self, y: Tensor) -> Form:
        k, n = y[:, :1], y[:, 1:]
        return logistic_form(self.local, k - 0.5 * n, n, _log_choose(k, n))


def _log_choose(k: Tensor, n: Tensor) -> Tensor:
    return torch.lgamma(n + 1.0) - torch.lgamma(k + 1.0) - torch.lgamma(n - k + 1.0)
