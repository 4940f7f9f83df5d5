"""What all logistic likelihoods share: log p(y | f) = κ f − n log 2cosh(f/2) + const(y).

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310; the other bound is that of Opper, Archambeau: "The Variational Gaussian
Approximation Revisited", Neural Computation 2009, doi:10.1162/neco.2008.08-07-592.

Bernoulli, binomial, negative binomial and one-vs-each differ in κ and n alone. E[log 2cosh(f/2)] has no closed
form; two bounds for it:

* `polya-gamma`: log 2cosh(c/2) with c² = E[f²], from q(ω) = PG(n, c). Closed-form and monotone: the paper's.
* `gaussian`: the average itself, by quadrature; tighter, a little slower, and its steps may need damping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp.quadrature import expected_logistic

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form

MOST_PRECISE = 0.25  # of one trial under either bound: E[ω] and the average slope of the sigmoid are largest at zero


@dataclass(frozen=True)
class LocalBound:
    """Of −log 2cosh(f/2), for f with mean m and variance v; each part by itself, as most callers want but one.

    Attributes:
        average: (m, v) → E[log 2cosh(f/2)] or a number above it.
        site: (m, v) → the site (h, r).
        compiled: → the module of gp/compiled/likelihoods that has both, and the options that it needs.
    """

    average: Callable[[Tensor, Tensor], Tensor]
    site: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    compiled: Callable[[], tuple[Any, tuple[float, ...]]]


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


def _gaussian_average(m: Tensor, v: Tensor) -> Tensor:
    return expected_logistic(m, v)[0] - 0.5 * m  # log 2cosh(f/2) = softplus(f) − f/2


def _gaussian_site(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    _, sigmoid, slope = expected_logistic(m, v)  # its derivatives are sigmoid(f) − ½ and sigmoid'(f)
    return slope, 0.5 - sigmoid + slope * m


def _pg_average(m: Tensor, v: Tensor) -> Tensor:
    # elbo-r, eq. 15, terms (b) and (c), eq. 16b and 17: −½ c² E[ω] − log 2 and −KL(q(ω)‖p(ω)) add up to −log 2cosh(c/2)
    return log_2cosh_half(pg_parameter(m, v))


def _pg_site(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return pg_mean(pg_parameter(m, v)), torch.zeros_like(m)


def _pg_compiled() -> tuple[Any, tuple[float, ...]]:
    from polyfed.gp.compiled.likelihoods import logistic

    return logistic, ()


def _gaussian_compiled() -> tuple[Any, tuple[float, ...]]:
    from polyfed.gp.compiled.likelihoods import quadrature

    return quadrature, quadrature.nodes()


polya_gamma = LocalBound(_pg_average, _pg_site, _pg_compiled)
BOUNDS = {"polya-gamma": polya_gamma, "gaussian": LocalBound(_gaussian_average, _gaussian_site, _gaussian_compiled)}


def bound_named(name: str) -> LocalBound:
    if name not in BOUNDS:
        raise ConfigError(f"bound {name!r} is unknown", remedy=nearest(name, BOUNDS))
    return BOUNDS[name]


def logistic_bound(local: LocalBound, kappa: Tensor, n: Tensor, m: Tensor, v: Tensor) -> Tensor:
    """κ m − n E[log 2cosh(f/2)], elementwise."""
    return kappa * m - n * local.average(m, v)


def logistic_site(local: LocalBound, kappa: Tensor, n: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """h = n E[ω] and r = κ (for `polya-gamma`), elementwise."""
    h, r = local.site(m, v)
    return n * h, kappa + n * r


def logistic_form(local: LocalBound, kappa: Tensor, n: Tensor, constant: Tensor) -> Form:
    """The compiled form of data with these κ, n and constants, (N, 1) each."""
    from polyfed.gp.compiled.likelihoods import Form

    compiled, options = local.compiled()
    return Form(compiled.site.address, compiled.bound.address, torch.cat([kappa, n, constant], -1), options)
