"""Binary classification: p(y | f) = sigmoid(y f), y ∈ {−1, 1}.  (eq1b, eq. 1b)

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310; in a Gaussian process, Wenzel, Galy-Fajou, Donner, Kloft, Opper: "Efficient
Gaussian Process Classification Using Pólya-Gamma Data Augmentation", AAAI 2019, arXiv:1802.06383.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.logistic import MOST_PRECISE, bound_named, logistic_bound, logistic_form, logistic_site
from polyfed.gp.quadrature import expected_sigmoid

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class Bernoulli(Likelihood):
    """κ = y/2, n = 1."""

    most_precise = MOST_PRECISE

    def __init__(self, *, bound: str = "polya-gamma", power: float = 1.0) -> None:
        self.local, self.power = bound_named(bound), power

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        kappa = 0.5 * y[:, None]
        return logistic_bound(self.local, kappa, torch.ones_like(kappa), m, v)[:, 0]

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        kappa = 0.5 * y[:, None]
        return logistic_site(self.local, kappa, torch.ones_like(kappa), m, v)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        return {"proba": expected_sigmoid(mean[:, 0], cov[:, 0, 0])}

    def compiled(self, y: Tensor) -> Form:
        kappa = 0.5 * y[:, None]
        return logistic_form(self.local, kappa, torch.ones_like(kappa), torch.zeros_like(kappa))
