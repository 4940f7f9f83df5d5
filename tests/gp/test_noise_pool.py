"""Noise levels drawn from a common distribution: against scipy's inverse gamma, F distribution, quadrature and optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from scipy.special import gammaln

from polyfed.gp import noise_pool

T = torch.tensor


def d(*values):
    return [T(value, dtype=torch.float64) for value in values]


@pytest.mark.parametrize(("total", "count"), [(3.0, 4.0), (0.2, 1.0), (50.0, 30.0)])
def test_marginal_is_the_integral_over_the_noise(total, count):
    strength, scale = 5.0, 0.7
    prior = stats.invgamma(strength / 2, scale=strength * scale / 2)

    def inside(log_noise):
        noise = np.exp(log_noise)
        return prior.pdf(noise) * noise ** (-count / 2) * np.exp(-total / 2 / noise) * noise

    wanted = np.log(integrate.quad(inside, -15, 12, epsabs=0, epsrel=1e-10, limit=200)[0])
    found = noise_pool.log_marginal(*d([total], [count], np.log(scale), np.log(strength)))
    assert found.item() == pytest.approx(wanted, abs=1e-8)


def test_marginal_is_the_f_distribution():
    """S/(n s²) of n residuals has n and ν degrees of freedom; the rest of its density knows neither ν nor s²."""
    total, n, scale, strength = 7.0, 6.0, 0.4, 9.0
    wanted = stats.f(n, strength).logpdf(total / (n * scale)) - np.log(n * scale)
    rest = (n / 2 - 1) * np.log(total) - n / 2 * np.log(2) - gammaln(n / 2)
    found = noise_pool.log_marginal(*d([total], [n], np.log(scale), np.log(strength)))
    assert found.item() + rest == pytest.approx(wanted, abs=1e-10)


def test_own_noise_is_what_the_posterior_says():
    total, count, scale, strength = 4.0, 9.0, 0.3, 6.0
    posterior = stats.invgamma((strength + count) / 2, scale=(strength * scale + total) / 2)
    mean_precision = posterior.expect(lambda noise: 1 / noise)
    found = noise_pool.own_log_noise(*d(total, count, np.log(scale), np.log(strength)))
    assert found.exp().item() == pytest.approx(1 / mean_precision, rel=1e-6)


def drawn(n_clients=400, strength=8.0, scale=0.5, seed=0):
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 40, n_clients)
    noise = stats.invgamma(strength / 2, scale=strength * scale / 2).rvs(n_clients, random_state=rng)
    return T(noise * rng.chisquare(count)), T(count.astype(float))


def test_many_clients_tell_what_they_were_drawn_from():
    total, count = drawn()
    log_scale, log_strength = noise_pool.pooled(total, count, *d(-3.0, 3.0))
    assert log_scale.exp().item() == pytest.approx(0.5, rel=0.1)
    assert log_strength.exp().item() == pytest.approx(8.0, rel=0.3)


@pytest.mark.parametrize("n_clients", [1, 3, 20])
@pytest.mark.parametrize("start", [(-2.3, 2.3), (4.0, -2.0), (-9.0, 8.0)])
@pytest.mark.parametrize("density", [None, [-1.6, 1.5, 0.0]])
def test_the_best_values_are_those_of_scipy(n_clients, start, density):
    total, count = drawn(n_clients, seed=n_clients)

    def cost(at):
        value = noise_pool.log_marginal(total, count, *d(*at)).item()
        prior = stats.norm(np.log(10), 1.5).logpdf(at[1])
        prior += 0.0 if density is None else stats.norm(*density[:2]).logpdf(at[0])
        return -value - 0.5 * prior

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    wanted = optimize.minimize(cost, [-1.0, 2.0], method="Nelder-Mead", options=options)
    found = noise_pool.pooled(total, count, *d(*start), None if density is None else d(density)[0], weight=0.5)
    assert [part.item() for part in found] == pytest.approx(wanted.x.tolist(), abs=1e-5)


def test_equal_clients_are_one_and_nobody_changes_nothing():
    log_scale, log_strength = noise_pool.pooled(
        torch.full((500,), 10.0).double(), torch.full((500,), 20.0).double(), *d(0.0, 2.0)
    )
    assert log_scale.exp().item() == pytest.approx(0.5, rel=0.01)
    assert log_strength > 5
    nobody = torch.zeros(3).double()
    assert [part.item() for part in noise_pool.pooled(nobody, nobody, *d(0.3, 2.0))] == [pytest.approx(0.3), 2.0]
