"""The local bound of each likelihood against its definition: the best of all auxiliary distributions, by search.

ℓ(m, v) = max over q(auxiliary) of E[log p(y, auxiliary | f)] + entropy  ≤  E[log p(y | f)],   f ~ N(m, v)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from oracle_likelihoods import DOF, KINDS, LOGISTIC, TYPICAL
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar
from scipy.special import digamma, gammaln

MEANS_AND_SDS = list(product([-4.0, -1.0, 0.0, 0.3, 2.5], [0.0, 0.2, 1.0, 3.0]))
NOISE = 1.7
LABELS = {
    "gaussian": [-1.0, 2.0],
    "student-t": [-1.0, 6.0],
    "bernoulli": [-1.0, 1.0],
    "binomial": [[0.0, 3.0], [4.0, 6.0]],
    "negative-binomial": [0.0, 5.0],
    "negative-binomial-typical": [0.0, 5.0],
}
CLASSES = ("one-vs-each", "logistic-softmax", "logistic-softmax-half")


def ours(kind: str, y, m, v, bound: str = "polya-gamma") -> float:
    """ℓ of one datum."""
    y, m, v = (torch.tensor(np.atleast_1d(t)[None], dtype=torch.float64) for t in (y, m, v))
    y = y if kind == "binomial" else y[:, 0]
    return float(KINDS[kind].ours(bound).local_bound(y, m, v, torch.tensor(NOISE, dtype=torch.float64))[0])


def log_density(kind: str, y, f) -> float:
    return float(
        KINDS[kind].log_density(
            np.atleast_1d(y)[None][:, 0] if kind != "binomial" else np.array([y]), np.atleast_1d(f)[None], NOISE
        )[0]
    )


def expected_log_density(kind: str, y, m: float, sd: float) -> float:
    def integrand(z: float) -> float:
        return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * log_density(kind, y, m + sd * z)

    centre = 0.0 if sd == 0.0 else float(np.clip(-m / sd, -9.0, 9.0))  # where a sigmoid bends
    return quad(integrand, -10.0, 10.0, points=[centre], limit=200, epsabs=1e-11)[0]


@pytest.mark.parametrize("kind", LABELS)
def test_local_bound_is_exact_where_f_is_known(kind):
    for y, m in product(LABELS[kind], [-6.0, -1.0, 0.0, 0.4, 5.0]):
        for bound in ("polya-gamma", "gaussian"):
            assert ours(kind, y, m, 0.0, bound) == pytest.approx(log_density(kind, y, m), abs=1e-9)


@pytest.mark.parametrize("kind", CLASSES)
def test_local_bound_of_classes_is_exact_where_f_is_known(kind):
    rng = np.random.default_rng(0)
    for y in range(3):
        f = rng.normal(0.0, 2.0, 3)
        rows = np.delete(f[y] - f, y) if kind == "one-vs-each" else f
        # The logistic-softmax has 1e-8 added to its denominator, here a number between 0.1 and 3.
        off = 1e-9 if kind == "one-vs-each" else 1e-7
        assert ours(kind, float(y), rows, 0.0 * rows) == pytest.approx(log_density(kind, float(y), f), abs=off)


@pytest.mark.parametrize("kind", LABELS)
def test_local_bound_is_below_the_expected_log_density(kind):
    for y, (m, sd) in product(LABELS[kind], MEANS_AND_SDS):
        expected = expected_log_density(kind, y, m, sd)
        assert ours(kind, y, m, sd**2) <= expected + 1e-8
        if kind in LOGISTIC or kind == "gaussian":  # the name promises the average itself
            assert ours(kind, y, m, sd**2, "gaussian") == pytest.approx(expected, abs=1e-7)


def forward_slope(function: Callable[[float], float]) -> float:
    """The derivative at zero from points to the right of it: a variance has no left."""
    step = 1e-4
    return (-3.0 * function(0.0) + 4.0 * function(step) - function(2.0 * step)) / (2.0 * step)


SITE_CASES = [
    (kind, bound) for kind in KINDS for bound in ("polya-gamma", "gaussian") if bound != "gaussian" or kind in LOGISTIC
]


@pytest.mark.parametrize(("kind", "bound"), SITE_CASES)
def test_site_is_the_slope_of_the_local_bound(kind, bound):
    """h = −2 ∂ℓ/∂v and r = ∂ℓ/∂m + h m, row by row; the smallest moments reach the series of E[ω]."""
    rng = np.random.default_rng(2)
    likelihood = KINDS[kind].ours(bound)
    n_rows = {"one-vs-each": 2}.get(kind, KINDS[kind].n_outputs)
    for y, (m, sd) in product(LABELS.get(kind, [0.0, 2.0]), [*MEANS_AND_SDS[::3], (1e-3, 1e-3)]):
        m, v = m * rng.uniform(0.8, 1.2, n_rows), np.full(n_rows, sd**2)
        as_y = torch.tensor([y], dtype=torch.float64)
        as_m, as_v = torch.tensor(m)[None], torch.tensor(v)[None]
        h, r = likelihood.site(as_y, as_m, as_v, torch.tensor(NOISE, dtype=torch.float64))
        h, r = h[0].numpy(), r[0].numpy()
        by_v = [forward_slope(lambda t, e=e, m=m, v=v, y=y: ours(kind, y, m, v + t * e, bound)) for e in np.eye(n_rows)]
        by_m = [forward_slope(lambda t, e=e, m=m, v=v, y=y: ours(kind, y, m + t * e, v, bound)) for e in np.eye(n_rows)]
        np.testing.assert_allclose(h, -2.0 * np.array(by_v), rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(r, by_m + h * m, rtol=1e-3, atol=2e-5)


def kappa_n_shift_constant(kind: str, y) -> tuple[float, float, float, float]:
    """log p = κ (f+s) − n log 2cosh((f+s)/2) + constant."""
    if kind == "bernoulli":
        return 0.5 * y, 1.0, 0.0, 0.0
    if kind == "binomial":
        k, n = y
        return k - 0.5 * n, n, 0.0, gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    shift = np.log(TYPICAL / NOISE) if kind == "negative-binomial-typical" else 0.0
    return 0.5 * (y - NOISE), y + NOISE, shift, gammaln(y + NOISE) - gammaln(y + 1) - gammaln(NOISE)


@pytest.mark.parametrize("kind", ["bernoulli", "binomial", "negative-binomial", "negative-binomial-typical"])
def test_polya_gamma_bound_is_the_best_quadratic(kind):
    """−log 2cosh(f/2) ≥ −log 2cosh(ξ/2) − (f² − ξ²) tanh(ξ/2) / 4ξ for every ξ: q(ω) = PG(n, ξ) in other words."""
    for y, (m, sd) in product(LABELS[kind], MEANS_AND_SDS):
        kappa, n, shift, constant = kappa_n_shift_constant(kind, y)
        second = (m + shift) ** 2 + sd**2

        def loss(xi: float, n: float = n, second: float = second) -> float:
            return n * (np.log(2.0 * np.cosh(xi / 2)) + (second - xi**2) * np.tanh(xi / 2) / (4 * xi))

        best = minimize_scalar(loss, bounds=(1e-6, 20.0), method="bounded", options={"xatol": 1e-9})
        expected = kappa * (m + shift) - best.fun + constant
        assert ours(kind, y, m, sd**2) == pytest.approx(expected, abs=1e-8)


def test_student_t_bound_is_the_best_gamma():
    for y, (m, sd) in product(LABELS["student-t"], MEANS_AND_SDS):
        error = (y - m) ** 2 + sd**2

        def loss(log_ab, error: float = error) -> float:
            a, b = np.exp(log_ab)
            tau, log_tau, half = a / b, digamma(a) - np.log(b), DOF / 2
            observed = 0.5 * (log_tau - np.log(2 * np.pi * NOISE)) - 0.5 * tau * error / NOISE
            prior = half * np.log(half) - gammaln(half) + (half - 1) * log_tau - half * tau
            return -(observed + prior + gamma_entropy(a, b))

        best = minimize(loss, [0.5, 0.5], method="BFGS", options={"gtol": 1e-9})
        assert ours("student-t", y, m, sd**2) == pytest.approx(-best.fun, abs=1e-8)


@pytest.mark.parametrize(("kind", "temperature"), [("logistic-softmax", 1.0), ("logistic-softmax-half", 0.5)])
def test_logistic_softmax_bound_lies_between_separate_auxiliaries_and_the_average(kind, temperature):
    """At least as good as the best q(λ) q(n, ω) with q(λ) a Gamma and q(n) Poisson; at most E[log p]."""
    rng = np.random.default_rng(1)
    z, w = np.polynomial.hermite_e.hermegauss(50)
    z = np.stack(np.meshgrid(z, z, z, indexing="ij"), -1).reshape(-1, 3)
    w = np.einsum("a,b,c->abc", w, w, w).ravel() / w.sum() ** 3
    for scale in (0.1, 0.5, 1.0, 2.0):
        m, sd, y = rng.normal(0.0, 1.5, 3), scale * rng.uniform(0.5, 1.0, 3), int(rng.integers(3))
        phi, c = m / temperature, np.sqrt(m**2 + sd**2) / temperature
        log_2cosh, hot = np.log(2.0 * np.cosh(c / 2)), np.eye(3)[y]

        def loss(x, phi=phi, log_2cosh=log_2cosh, hot=hot) -> float:
            a, b, gamma = np.exp(x[0]), np.exp(x[1]), np.exp(x[2:])
            rate, log_rate = a / b, digamma(a) - np.log(b)
            counts = gamma * log_rate - rate + gamma - gamma * np.log(gamma)
            return -(gamma_entropy(a, b) + (counts + 0.5 * (hot - gamma) * phi - (hot + gamma) * log_2cosh).sum())

        separate = -minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).fun
        density = KINDS[kind].log_density(np.full(len(z), y), m + sd * z, 1.0)
        assert separate - 1e-8 <= ours(kind, float(y), m, sd**2) <= w @ density + 1e-8


def gamma_entropy(a: float, b: float) -> float:
    return a - np.log(b) + gammaln(a) + (1 - a) * digamma(a)
