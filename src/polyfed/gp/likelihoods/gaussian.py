"""Regression.

Rasmussen, Williams: "Gaussian Processes for Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001, section
2.2.
"""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING

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


def squared_error(y: Tensor, m: Tensor, v: Tensor) -> Tensor:
    """E[(y − f)²], (N, 1), for data of one row."""
    return (y[:, None] - m).square() + v
