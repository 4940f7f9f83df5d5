"""Regression, and robust regression, whose noise has heavy tails.

Rasmussen, Williams: "Gaussian Processes for Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001, section
2.2. Student's t: Tipping, Lawrence: "Variational inference for Student-t models: Robust Bayesian interpolation and generalised
component analysis", Neurocomputing 2005, doi:10.1016/j.neucom.2005.02.016; in a Gaussian process, Jylänki, Vanhatalo, Vehtari:
"Robust Gaussian Process Regression with a Student-t Likelihood", Journal of Machine Learning Research 2011, arXiv:1106.3975.
"""

from __future__ import annotations

from math import lgamma, log, pi
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood, required

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class Gaussian(Likelihood):
    """y = f + N(0, σ²)  (eq1a, eq. 1a): conjugate, its site does not depend on q, so inference ends after one step."""

    initial_noise = 0.1
    closed_form_noise = True
    fixed_site = True
    most_precise = 1.0

    def __init__(self, *, power: float = 1.0) -> None:
        self.power = power

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        sigma2 = required(noise)
        # elbo-r, eq. 15, term (a), eq. 16a: E[log N(y | f, σ²)]
        return (-0.5 * (log(2.0 * pi) + sigma2.log() + squared_error(y, m, v) / sigma2)).sum(-1)

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        h = (1.0 / required(noise)).expand_as(m)  # D^r of equ:mf_local_q2, eq. 3b
        return h, h * y[:, None]

    def best_noise(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        # optimial sigma, eq. 20: σ² = (1/N) Σ y² − 2 y E[f] + E[f²] = (1/N) Σ (y − m)² + v
        return squared_error(y, m, v).sum(-1)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        return {"noise_std": required(noise).sqrt()}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled import likelihoods as forms

        return forms.Form(forms.gaussian_site.address, forms.gaussian_bound.address, y)


class StudentT(Likelihood):
    """y = f + σ t_ν, a Gaussian whose precision τ is itself Gamma(ν/2, ν/2): outliers keep E[τ] small and so weigh little.

    q(τ) = Ga(a, b) with a = (ν+1)/2, b = ½(ν + e/σ²), e = E[(y − f)²]. With that q(τ) put in, the local bound is the
    Student density with e in place of (y − f)².
    """

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


def squared_error(y: Tensor, m: Tensor, v: Tensor) -> Tensor:
    """E[(y − f)²], (N, 1), for data of one row."""
    return (y[:, None] - m).square() + v
