"""Logistic likelihoods: log p(y | f) = κ f − n log 2cosh(f/2) + const(y).

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310; in a Gaussian process, Wenzel, Galy-Fajou, Donner, Kloft, Opper: "Efficient
Gaussian Process Classification Using Pólya-Gamma Data Augmentation", AAAI 2019, arXiv:1802.06383.

Bernoulli, binomial, negative binomial and one-vs-each differ in κ and n alone. E[log 2cosh(f/2)] has no closed
form; two bounds for it:

* `polya-gamma`: log 2cosh(c/2) with c² = E[f²], from q(ω) = PG(n, c). Closed-form and monotone: the paper's.
* `gaussian`: the average itself, by quadrature; tighter, a little slower, and its steps may need damping: Opper, Archambeau:
  "The Variational Gaussian Approximation Revisited", Neural Computation 2009, doi:10.1162/neco.2008.08-07-592.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.quadrature import expected_logistic, expected_sigmoid

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form

BOUNDS = ("polya-gamma", "gaussian")
MOST_PRECISE = 0.25  # of one trial under either bound: E[ω] and the average slope of the sigmoid are largest at zero


def log_2cosh_half(c: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """log 2cosh(c/2) for c ≥ 0, without overflow."""
    return 0.5 * c + torch.log1p(torch.exp(-c))


def pg_mean(c: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """E[ω] for ω ~ PG(1, c), c ≥ 0: tanh(c/2) / 2c, by its series where that is 0/0."""
    small = c < 1e-2
    safe = torch.where(small, 1.0, c)
    series = 0.25 - c.square() / 48.0 + c.square().square() / 480.0
    return torch.where(small, series, torch.tanh(0.5 * safe) / (2.0 * safe))


def pg_parameter(m: Float[Tensor, "*S"], v: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """c of q(ω) = PG(1, c), with c² = E[f²].  (equ:mf_local_q1, eq. 3a)"""
    return (m.square() + v).sqrt()


class Logistic(Likelihood):
    """A subclass names its terms."""

    said = "proba"  # a read-out's name of the average of sigmoid(f)

    def __init__(self, *, bound: str = "polya-gamma", power: float = 1.0) -> None:
        if bound not in BOUNDS:
            raise ConfigError(f"bound {bound!r} is unknown", remedy=nearest(bound, BOUNDS))
        self.bound, self.power = bound, power

    @abstractmethod
    def terms(self, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
        """κ, n and the constant, (N, 1) each, and what is added to f."""

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        kappa, n, constant, shift = self.terms(y, noise)
        m = m + shift
        return (constant + (kappa * m - n * self._average(m, v))).sum(-1)

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        kappa, n, _, shift = self.terms(y, noise)
        h, r = self._site_of_trial(m + shift, v)
        h, r = n * h, kappa + n * r
        return h, r - h * shift  # a site in f + shift, written in f

    def _average(self, m: Tensor, v: Tensor) -> Tensor:
        """E[log 2cosh(f/2)], or a number above it."""
        if self.bound == "gaussian":
            return expected_logistic(m, v)[0] - 0.5 * m  # log 2cosh(f/2) = softplus(f) − f/2
        # elbo-r, eq. 15, terms (b) and (c), eq. 16b and 17: −½ c² E[ω] − log 2 and −KL(q(ω)‖p(ω)) add up to −log 2cosh(c/2)
        return log_2cosh_half(pg_parameter(m, v))

    def _site_of_trial(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(h, r) of −log 2cosh(f/2)."""
        if self.bound == "gaussian":
            _, sigmoid, slope = expected_logistic(m, v)  # its derivatives are sigmoid(f) − ½ and sigmoid'(f)
            return slope, 0.5 - sigmoid + slope * m
        return pg_mean(pg_parameter(m, v)), torch.zeros_like(m)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        return {self.said: expected_sigmoid(mean[:, 0], cov[:, 0, 0])}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled import likelihoods as forms

        codes = torch.cat(self.terms(y, None)[:3], -1)
        return forms.Form(forms.logistic_site.address, forms.logistic_bound.address, codes, forms.OPTIONS[self.bound])


class Bernoulli(Logistic):
    """Binary classification: p(y | f) = sigmoid(y f), y ∈ {−1, 1}, so that κ = y/2 and n = 1.  (eq1b, eq. 1b)"""

    most_precise = MOST_PRECISE

    def terms(self, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        kappa = 0.5 * y[:, None]
        return kappa, torch.ones_like(kappa), torch.zeros_like(kappa), 0.0


class Binomial(Logistic):
    """Proportions: k successes of n trials, each with probability sigmoid(f): κ = k − n/2. y holds the pairs (k, n)."""

    said = "mean"

    def terms(self, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        k, n = y[:, :1], y[:, 1:]
        return k - 0.5 * n, n, torch.lgamma(n + 1.0) - torch.lgamma(k + 1.0) - torch.lgamma(n - k + 1.0), 0.0
