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

from polyfed.gp.likelihoods.base import required
from polyfed.gp.likelihoods.logistic import Logistic

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class NegativeBinomial(Logistic):
    """Counts with dispersion ρ, which is learned as the task's `noise`: mean μ₀ eᶠ, variance mean + mean²/ρ."""

    initial_noise = 2.0

    def __init__(self, *, typical: float | None = None, bound: str = "polya-gamma", power: float = 1.0) -> None:
        super().__init__(bound=bound, power=power)
        self.typical = typical

    def terms(self, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y, rho = y[:, None], required(noise)
        choose = torch.lgamma(y + rho) - torch.lgamma(y + 1.0) - torch.lgamma(rho)
        kappa, n = 0.5 * (y - rho), y + rho
        return kappa, n, choose, torch.zeros_like(rho) if self.typical is None else log(self.typical) - rho.log()

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        rho = required(noise)
        log_typical = rho.log() if self.typical is None else torch.tensor(log(self.typical), dtype=rho.dtype)
        return {"dispersion": rho, "log_typical": log_typical}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled import likelihoods as forms

        shifted = (0.0, 0.0) if self.typical is None else (1.0, log(self.typical))
        options = (*shifted, *forms.OPTIONS[self.bound])
        return forms.Form(forms.counts_site.address, forms.counts_bound.address, y, options)
