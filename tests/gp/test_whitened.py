"""Features of shared latents: what they stand for, and their derivative against plain autograd."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm

from polyfed.gp import Prior
from polyfed.gp.kernels import KERNELS
from polyfed.gp.whitened import EDGE, features_of_rows, n_features, normal_points, whitened

D, M, N = 3, 7, 6
STATIONARY = [name for name, kernel in KERNELS.items() if kernel.features is None]


def make_prior(kernels, per_dimension, seed=0):
    prior = Prior(kernels=kernels, dims=D, outputs={"pulse": 2}, per_dimension=per_dimension)
    generator = torch.Generator().manual_seed(seed)
    return prior.load(
        {n: 0.5 * torch.randn(v.shape, dtype=torch.float64, generator=generator) for n, v in prior.state().items()}
    )


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kernel", STATIONARY)
def test_at_the_points_themselves_products_of_features_are_the_kernel(kernel):
    prior, Z = make_prior([kernel], True), normal_points(M, D)
    phi = whitened(prior, 0, Z, Z)
    K = prior.latent_covariance(0, Z, Z) / prior.amplitude(0)
    torch.testing.assert_close(phi @ phi.mT, K, rtol=0, atol=1e-7)  # the jitter is 1e-8


@pytest.mark.parametrize(("kernel", "size"), [("linear", D), ("affine", D + 1)])
def test_products_of_linear_features_are_the_kernel_everywhere(kernel, size):
    prior, x = make_prior([kernel], False), drawn(N, D)
    phi = whitened(prior, 0, normal_points(M, D), x)
    assert n_features(prior, 0, M) == phi.shape[-1] == size
    K = prior.latent_covariance(0, x, x) / prior.amplitude(0)
    torch.testing.assert_close(phi @ phi.mT, K, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel", STATIONARY)
def test_elsewhere_they_leave_a_covariance(kernel):
    """K − φφᵀ is positive semi-definite, and zero nowhere that Z is not."""
    prior, x = make_prior([kernel], True), drawn(40, D)
    phi = whitened(prior, 0, normal_points(M, D), x)
    left = (prior.latent_covariance(0, x, x) / prior.amplitude(0) - phi @ phi.mT).detach()
    assert float(torch.linalg.eigvalsh(left)[0]) > -1e-10
    assert float(left.diagonal().max()) > 0.1


@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("kernel", [*STATIONARY, "linear", "affine"])
@pytest.mark.parametrize("n_clients", [None, 3])
def test_the_derivative_by_hand_is_that_of_autograd(kernel, per_dimension, n_clients):
    """Clients that share their kernels take another way than those that do not: their values and gradients agree."""
    one = make_prior([kernel, "rbf", "matern52"], per_dimension)
    Z, shape = normal_points(M, D), (N,) if n_clients is None else (n_clients, N)
    x, a = drawn(*shape, D, seed=1), drawn(*shape, 3, seed=2)
    G = drawn(*shape, 2 * M + n_features(one, 0, M), seed=3)
    common = one if n_clients is None else one.expand(n_clients)
    apart = common.with_values({n: v.clone() for n, v in common.parameters.items()})
    assert n_clients is None or not apart.is_common("kernels.1.log_phi1")
    plain = torch.cat(
        [(a[..., b] * apart.amplitude(b)[..., None].sqrt())[..., None] * whitened(apart, b, Z, x) for b in range(3)],
        -1,
    )
    for prior, Phi in ((common, features_of_rows(common, 3, Z, x, a)), (apart, features_of_rows(apart, 3, Z, x, a))):
        torch.testing.assert_close(Phi, plain, rtol=0, atol=1e-9)
        names = list(prior.group("kernels"))
        wanted = torch.autograd.grad((plain * G).sum(), [apart.parameters[n] for n in names], retain_graph=True)
        found = torch.autograd.grad((Phi * G).sum(), [prior.parameters[n] for n in names])
        for name, mine, other in zip(names, found, wanted, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7, msg=name)


def test_the_derivative_in_the_mixing_weights():
    prior, Z, x = make_prior(["rbf", "linear"], True), normal_points(M, D), drawn(N, D)
    a = drawn(N, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda weights: features_of_rows(prior, 2, Z, x, weights), (a,))


def test_points_fill_a_standard_normal_and_are_always_the_same():
    Z = normal_points(512, 4)
    assert torch.equal(Z, normal_points(512, 4))
    assert torch.equal(Z[:100], normal_points(100, 4))
    assert float(Z.abs().max()) <= -norm.ppf(EDGE) + 1e-12
    torch.testing.assert_close(Z.mean(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=0.02)
    torch.testing.assert_close(Z.std(0), torch.ones(4, dtype=torch.float64), rtol=0, atol=0.03)
