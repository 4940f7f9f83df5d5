"""Counts with dispersion ρ: mean μ₀ eᶠ, variance mean + mean²/ρ.

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310, and Zhou, Li, Dunson, Carin: "Lognormal and Gamma Mixed Negative Binomial
Regression", ICML 2012, arXiv:1206.6456.

As a logistic likelihood its success probability is sigmoid(f + s) with s = log μ₀ − log ρ: κ = (y − ρ)/2 and
n = y + ρ act on f + s. μ₀ is the typical count (a scale of the target, like the mean in regression), so that f
stays of order one and ρ speaks of dispersion alone. With μ₀ = None, s = 0: the bare form, mean ρ eᶠ.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood, required
from polyfed.gp.likelihoods.logistic import bound_named, logistic_bound, logistic_site

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class NegativeBinomial(Likelihood):
    """Its dispersion ρ is learned as the task's `noise`."""

    initial_noise = 2.0

    def __init__(self, *, typical: float | None = None, bound: str = "polya-gamma", power: float = 1.0) -> None:
        self.typical, self.local, self.power = typical, bound_named(bound), power

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        y, rho = y[:, None], required(noise)
        choose = torch.lgamma(y + rho) - torch.lgamma(y + 1.0) - torch.lgamma(rho)
        kappa, n = 0.5 * (y - rho), y + rho
        return (choose + logistic_bound(self.local, kappa, n, m + self._shift(rho), v))[:, 0]

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        y, rho = y[:, None], required(noise)
        s = self._shift(rho)
        h, r = logistic_site(self.local, 0.5 * (y - rho), y + rho, m + s, v)
        return h, r - h * s  # a site in f + s, written in f

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        rho = required(noise)
        log_typical = rho.log() if self.typical is None else torch.tensor(log(self.typical), dtype=rho.dtype)
        return {"dispersion": rho, "log_typical": log_typical}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled.likelihoods import Form

        compiled, options = self.local.compiled()
        shifted = (0.0, 0.0) if self.typical is None else (1.0, log(self.typical))
        return Form(compiled.counts_site.address, compiled.counts_bound.address, y, (*shifted, *options))

    def _shift(self, rho: Tensor) -> Tensor:
        return torch.zeros_like(rho) if self.typical is None else log(self.typical) - rho.log()
