"""The likelihoods a second time, in numpy and from their textbook formulas: nothing here calls the library's own.

A kind is a name of the table `KINDS`. Scores f have shape (..., data, outputs), log densities (..., data).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_expit, log_softmax

from polyfed.gp.likelihoods import (
    Bernoulli,
    Binomial,
    Gaussian,
    Likelihood,
    LogisticSoftmax,
    NegativeBinomial,
    OneVsEach,
    StudentT,
)

Array = NDArray[np.float64]
DOF = 4.0
TYPICAL = 3.0
N_CLASSES = 3


@dataclass(frozen=True)
class Kind:
    """One likelihood: its log density by formula, a draw of labels, and the library's object under test."""

    log_density: Callable[[Array, Array, float], Array]  # (y, f, noise)
    draw: Callable[[Array, float, np.random.Generator], Array]  # (f, noise, rng)
    ours: Callable[[str], Likelihood]  # (bound)
    noise: float | None = None
    n_outputs: int = 1


def _gaussian(y: Array, f: Array, noise: float) -> Array:
    return -0.5 * np.log(2.0 * np.pi * noise) - (y - f[..., 0]) ** 2 / (2.0 * noise)


def _student_t(y: Array, f: Array, noise: float) -> Array:
    z2 = (y - f[..., 0]) ** 2 / noise
    constant = gammaln((DOF + 1) / 2) - gammaln(DOF / 2) - 0.5 * np.log(DOF * np.pi * noise)
    return constant - (DOF + 1) / 2 * np.log1p(z2 / DOF)


def _bernoulli(y: Array, f: Array, noise: float) -> Array:
    return log_expit(y * f[..., 0])


def _binomial(y: Array, f: Array, noise: float) -> Array:
    k, n = y[:, 0], y[:, 1]
    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return choose + n * log_expit(f[..., 0]) - (n - k) * f[..., 0]  # log σ(−f) = log σ(f) − f


def _negative_binomial(y: Array, log_mean: Array, rho: float) -> Array:
    # mean μ and variance μ + μ²/ρ: Γ(y+ρ)/(y! Γ(ρ)) (ρ/(ρ+μ))^ρ (μ/(ρ+μ))^y
    log_total = np.logaddexp(np.log(rho), log_mean)
    choose = gammaln(y + rho) - gammaln(y + 1) - gammaln(rho)
    return choose + rho * (np.log(rho) - log_total) + y * (log_mean - log_total)


def _pick(log_p: Array, y: Array) -> Array:
    return log_p[..., np.arange(len(y)), y.astype(int)]


def _one_vs_each(y: Array, f: Array, noise: float) -> Array:
    own = _pick(f, y)[..., None]
    # The label's own term is sigmoid(0) = ½ and does not belong to the product.
    return log_expit(own - f).sum(-1) + np.log(2.0)


def _softmax(y: Array, f: Array, noise: float) -> Array:
    return _pick(log_softmax(f, -1), y)


def _logistic_softmax(temperature: float) -> Callable[[Array, Array, float], Array]:
    def log_density(y: Array, f: Array, noise: float) -> Array:
        return log_expit(_pick(f, y) / temperature) - np.log(expit(f / temperature).sum(-1))

    return log_density


def _draw_class(log_density: Callable[[Array, Array, float], Array]):
    def draw(f: Array, noise: float, rng: np.random.Generator) -> Array:
        log_p = np.stack([log_density(np.full(len(f), k), f, 1.0) for k in range(f.shape[-1])], -1)
        return (log_p + rng.gumbel(size=log_p.shape)).argmax(-1).astype(float)

    return draw


def _draw_counts(mean_at_zero: Callable[[float], float]):
    def draw(f: Array, noise: float, rng: np.random.Generator) -> Array:
        mean = mean_at_zero(noise) * np.exp(f[:, 0])
        return rng.negative_binomial(noise, noise / (noise + mean)).astype(float)

    return draw


def _draw_successes(f: Array, noise: float, rng: np.random.Generator) -> Array:
    n = rng.integers(1, 7, len(f))
    return np.stack([rng.binomial(n, expit(f[:, 0])), n], -1).astype(float)


KINDS: dict[str, Kind] = {
    "gaussian": Kind(
        _gaussian,
        lambda f, noise, rng: rng.normal(f[:, 0], noise**0.5),
        lambda bound: Gaussian(),
        noise=0.3,
    ),
    "student-t": Kind(
        _student_t,
        lambda f, noise, rng: f[:, 0] + noise**0.5 * rng.standard_t(DOF, len(f)),
        lambda bound: StudentT(dof=DOF),
        noise=0.3,
    ),
    "bernoulli": Kind(
        _bernoulli,
        lambda f, noise, rng: np.where(rng.random(len(f)) < expit(f[:, 0]), 1.0, -1.0),
        lambda bound: Bernoulli(bound=bound),
    ),
    "binomial": Kind(_binomial, _draw_successes, lambda bound: Binomial(bound=bound)),
    "negative-binomial": Kind(
        lambda y, f, rho: _negative_binomial(y, np.log(rho) + f[..., 0], rho),
        _draw_counts(lambda rho: rho),
        lambda bound: NegativeBinomial(bound=bound),
        noise=2.0,
    ),
    "negative-binomial-typical": Kind(
        lambda y, f, rho: _negative_binomial(y, np.log(TYPICAL) + f[..., 0], rho),
        _draw_counts(lambda rho: TYPICAL),
        lambda bound: NegativeBinomial(typical=TYPICAL, bound=bound),
        noise=1.5,
    ),
    "one-vs-each": Kind(
        _one_vs_each,
        _draw_class(_softmax),
        lambda bound: OneVsEach(N_CLASSES, bound=bound),
        n_outputs=N_CLASSES,
    ),
    "logistic-softmax": Kind(
        _logistic_softmax(1.0),
        _draw_class(_logistic_softmax(1.0)),
        lambda bound: LogisticSoftmax(N_CLASSES),
        n_outputs=N_CLASSES,
    ),
    "logistic-softmax-half": Kind(
        _logistic_softmax(0.5),
        _draw_class(_logistic_softmax(0.5)),
        lambda bound: LogisticSoftmax(N_CLASSES, temperature=0.5),
        n_outputs=N_CLASSES,
    ),
}
SOFTMAX = _softmax  # what one-vs-each bounds from below
LOGISTIC = ("bernoulli", "binomial", "negative-binomial", "negative-binomial-typical", "one-vs-each")
