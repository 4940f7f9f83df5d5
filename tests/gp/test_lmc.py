"""The prior covariance of rows and its derivative, which is written out: against a loop and central differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from polyfed.gp import Prior
from polyfed.gp.kernels import KERNELS
from polyfed.gp.lmc import Distances, Gather, lmc_covariance
from problems import central_differences, normal

D, U, B = 2, 5, 3
AT = {
    "an input for each row": torch.arange(U),
    "rows that share inputs": torch.tensor([0, 3, 3, 1, 0, 4, 2]),
}


def make_prior(kernel: str, seed: int = 0) -> Prior:
    prior = Prior(kernels=[kernel, "matern52", "rbf"], dims=D, outputs={"pulse": 1})
    rng = np.random.default_rng(seed)
    return prior.load({name: 0.6 * normal(rng, *value.shape) for name, value in prior.state().items()})


def covariance(prior: Prior, x: Tensor, at: Tensor, a: Tensor) -> Tensor:
    return lmc_covariance(prior, Distances(x), Gather(at, U), a)


def by_loop(prior: Prior, x: Tensor, at: Tensor, a: Tensor) -> Tensor:
    K = torch.zeros(len(at), len(at), dtype=torch.float64)
    for b in range(B):
        k = prior.latent_covariance(b, x, x).detach()
        for i, of_i in enumerate(at):
            for j, of_j in enumerate(at):
                K[i, j] += a[i, b] * a[j, b] * k[of_i, of_j]
    return K


@pytest.mark.parametrize("at", AT.values(), ids=list(AT))
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_covariance_of_rows(kernel, at):
    rng, prior = np.random.default_rng(1), make_prior(kernel)
    x, a = normal(rng, U, D), normal(rng, len(at), B)
    torch.testing.assert_close(covariance(prior, x, at, a).detach(), by_loop(prior, x, at, a), rtol=0, atol=1e-12)


@pytest.mark.parametrize("at", AT.values(), ids=list(AT))
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_derivative_of_covariance(kernel, at):
    """In the mixing vectors, amplitudes and length-scales; what comes from above is symmetric, as it is from logZ."""
    rng, prior = np.random.default_rng(2), make_prior(kernel)
    x, a, G = normal(rng, U, D), normal(rng, len(at), B).requires_grad_(), normal(rng, len(at), len(at))
    G = G + G.mT

    def value() -> Tensor:
        return (G * covariance(prior, x, at, a)).sum()

    of = {"a": a, **prior.group("kernels")}
    for (name, at_), slope in zip(of.items(), torch.autograd.grad(value(), list(of.values())), strict=True):
        torch.testing.assert_close(slope, central_differences(value, at_), rtol=1e-7, atol=1e-7, msg=name)


def test_derivative_of_covariance_in_a_batch_that_shares_a_prior():
    rng, prior, at = np.random.default_rng(3), make_prior("cauchy"), torch.arange(U)
    x, a, G = normal(rng, 3, U, D), normal(rng, 3, U, B), normal(rng, 3, U, U)
    G = G + G.mT
    of = list(prior.group("kernels").values())
    whole = torch.autograd.grad((G * covariance(prior, x, at.expand(3, U), a)).sum(), of)
    parts = [torch.autograd.grad((G[c] * covariance(prior, x[c], at, a[c])).sum(), of) for c in range(3)]
    for found, summed in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(found, sum(summed))
