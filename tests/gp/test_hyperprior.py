"""The prior of Θ against scipy's densities, autograd and scipy's optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from polyfed.gp import Prior
from polyfed.gp.hyperprior import HyperPrior, best_log_noise, gradient, log_density

HYPER = HyperPrior(mixing=0.8, amplitude=1.3, length=0.6, ard=0.4, noise_at=0.3, noise=1.1)


def drawn(per_dimension=True, dims=3, seed=0):
    prior = Prior(
        kernels=["rbf", "laplace", "linear"],
        dims=dims,
        outputs={"pulse": 1, "stage": 3},
        noise={"pulse": 0.1},
        per_dimension=per_dimension,
    )
    generator = torch.Generator().manual_seed(seed)
    state = {name: torch.randn(v.shape, generator=generator, dtype=torch.float64) for name, v in prior.state().items()}
    return prior, state


@pytest.mark.parametrize("per_dimension", [True, False])
def test_density_is_that_of_scipy(per_dimension):
    """Lengths are told to scipy as lengths, with the common value integrated out by a dense covariance."""
    prior, state = drawn(per_dimension)
    wanted = 0.0
    for name, value in state.items():
        numbers = value.numpy().reshape(-1)
        if name.endswith("log_phi1"):
            kernel = prior.kernels[int(name.split(".")[1])]
            log_lengths = kernel.parameters["phi1"].length(value).log().numpy()
            n = len(log_lengths)
            cov = HYPER.length**2 * np.ones((n, n)) + (HYPER.ard**2 * np.eye(n) if per_dimension else 0.0)
            wanted += stats.multivariate_normal(np.full(n, np.log(np.sqrt(6.0))), cov).logpdf(log_lengths)
            wanted -= n * np.log(kernel.exponent)  # |∂ log ℓ / ∂ log φ₁| = 1/exponent
        elif name.endswith("log_amplitude"):
            wanted += stats.norm(0, HYPER.amplitude).logpdf(numbers).sum()
        elif name.startswith("mixing"):
            wanted += stats.norm(0, HYPER.mixing).logpdf(numbers).sum()
        else:
            wanted += stats.norm(np.log(HYPER.noise_at), HYPER.noise).logpdf(numbers).sum()
    assert log_density(state, HYPER.densities(prior)).item() == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("per_dimension", [True, False])
def test_gradient_is_that_of_autograd(per_dimension):
    prior, state = drawn(per_dimension, seed=1)
    densities = HYPER.densities(prior)
    assert densities.keys() == state.keys()
    leaves = {name: value.clone().requires_grad_() for name, value in state.items()}
    wanted = torch.autograd.grad(log_density(leaves, densities), list(leaves.values()))
    found = gradient(state, densities)
    for name, want in zip(leaves, wanted, strict=True):
        torch.testing.assert_close(found[name], want, rtol=0, atol=1e-12)


def test_many_clients_are_each_by_itself():
    prior, first = drawn(seed=2)
    _, second = drawn(seed=3)
    densities = HYPER.densities(prior)
    both = gradient({name: torch.stack([first[name], second[name]]) for name in first}, densities)
    for i, alone in enumerate((first, second)):
        for name, wanted in gradient(alone, densities).items():
            torch.testing.assert_close(both[name][i], wanted, rtol=0, atol=1e-14)


def test_a_single_input_has_nothing_to_share():
    """One input with a length-scale of its own is as one length-scale for all."""
    state = {"kernels.0.log_phi1": torch.tensor([0.7], dtype=torch.float64)}
    own, common = (HYPER.densities(drawn(per_dimension, dims=1)[0]) for per_dimension in (True, False))
    assert torch.equal(log_density(state, own), log_density(state, common))


def test_features_have_no_density():
    prior = Prior(kernels=["rbf"], dims=1, projected=4, outputs={"pulse": 1}, mean="linear")
    assert not any(name.startswith("features") for name in HYPER.densities(prior))


@pytest.mark.parametrize("total", [1e-12, 0.3, 40.0, 1e7])
@pytest.mark.parametrize("count", [1.0, 25.0, 1e5])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_noise_is_where_scipy_finds_it(total, count, weight):
    density = torch.tensor([-1.6, 1.5, 0.0], dtype=torch.float64)

    def slope(t):
        return -0.5 * count + 0.5 * total * np.exp(-t) - weight * (t + 1.6) / 1.5**2

    found = best_log_noise(*(torch.tensor(v, dtype=torch.float64) for v in (total, count)), density, weight).item()
    wanted = optimize.brentq(slope, -600.0, 60.0, xtol=1e-12)
    assert found == pytest.approx(wanted, abs=1e-8)


def test_no_residual_and_no_label():
    density = torch.tensor([-1.6, 1.5, 0.0], dtype=torch.float64)
    zero, ten = torch.zeros((), dtype=torch.float64), torch.tensor(10.0, dtype=torch.float64)
    assert best_log_noise(zero, zero, density).item() == pytest.approx(-1.6)
    assert best_log_noise(zero, ten, density).item() == pytest.approx(-1.6 - 5 * 1.5**2)  # the slope is linear then
    assert best_log_noise(ten, ten, None).item() == 0.0
