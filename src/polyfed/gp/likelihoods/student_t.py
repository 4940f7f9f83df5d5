"""Robust regression: y = f + σ t_ν, a Gaussian whose precision τ is itself Gamma(ν/2, ν/2).

Tipping, Lawrence: "Variational inference for Student-t models: Robust Bayesian interpolation and generalised component
analysis", Neurocomputing 2005, doi:10.1016/j.neucom.2005.02.016; in a Gaussian process, Jylänki, Vanhatalo, Vehtari:
"Robust Gaussian Process Regression with a Student-t Likelihood", Journal of Machine Learning Research 2011,
arXiv:1106.3975.

q(τ) = Ga(a, b) with a = (ν+1)/2, b = ½(ν + e/σ²), e = E[(y − f)²]. With that q(τ) put in, the local bound is the
Student density with e in place of (y − f)².
"""

from __future__ import annotations

from math import lgamma, log, pi
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood, required
from polyfed.gp.likelihoods.gaussian import squared_error

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class StudentT(Likelihood):
    """y = f + σ t_ν, a Gaussian whose precision τ is itself Gamma(ν/2, ν/2): outliers keep E[τ] small and so weigh little."""

    initial_noise = 0.1
    closed_form_noise = True

    def __init__(self, *, dof: float = 4.0, power: float = 1.0) -> None:
        self.dof, self.power = dof, power
        self._constant = lgamma((dof + 1.0) / 2.0) - lgamma(dof / 2.0) - 0.5 * log(dof * pi)
        self.most_precise = (dof + 1.0) / dof  # a datum that lies where it is expected

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        nu, sigma2 = self.dof, required(noise)
        spread = torch.log1p(squared_error(y, m, v) / (nu * sigma2))
        return (self._constant - 0.5 * sigma2.log() - 0.5 * (nu + 1.0) * spread).sum(-1)

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        h = self._weight(y, m, v, required(noise))
        return h, h * y[:, None]

    def best_noise(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        # σ² = (1/N) Σ E[τ] e, at the current q(τ)
        sigma2 = required(noise)
        return (self._weight(y, m, v, sigma2) * sigma2 * squared_error(y, m, v)).sum(-1)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        return {"scale": required(noise).sqrt(), "dof": torch.tensor(self.dof, dtype=torch.float64)}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled import likelihoods as forms

        return forms.Form(forms.student_site.address, forms.student_bound.address, y, (self.dof, self._constant))

    def _weight(self, y: Tensor, m: Tensor, v: Tensor, sigma2: Tensor) -> Tensor:
        return (self.dof + 1.0) / (self.dof * sigma2 + squared_error(y, m, v))  # E[τ]/σ² = a/(b σ²)
