"""Periodic kernels, sums and products against scikit-learn and gpytorch, inside a Gaussian process and alone."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern

from polyfed.gp import ExactModel, Prior, Rows, infer, predict_latents
from polyfed.gp.kernels import kernel_of, periodic
from polyfed.gp.likelihoods import Gaussian

PHI0, PHI1, PERIOD, RATIO, NOISE = 1.3, (0.8, 2.5), 1.7, 0.6, 0.1
WEIGHTS = np.array([1.0, RATIO]) / (1.0 + RATIO)


def sine(phi1: float) -> ExpSineSquared:
    return ExpSineSquared(phi1**-0.5, PERIOD, "fixed", "fixed")


def rbf(phi1: float) -> RBF:
    return RBF(phi1**-0.5, "fixed")


def constant(value: float) -> ConstantKernel:
    return ConstantKernel(value, "fixed")


# ours → theirs; φ₁ of the first part and of the second, and the period of whatever has one
SAME = {
    "periodic": sine(PHI1[0]),
    "rbf + periodic": constant(WEIGHTS[0]) * rbf(PHI1[0]) + constant(WEIGHTS[1]) * sine(PHI1[1]),
    "rbf * periodic": rbf(PHI1[0]) * sine(PHI1[1]),
    "matern32 * (rbf + periodic)": Matern(PHI1[0] ** -0.5, "fixed", 1.5)
    * (constant(WEIGHTS[0]) * rbf(PHI1[0]) + constant(WEIGHTS[1]) * sine(PHI1[1])),
}


def values(prior: Prior) -> dict[str, torch.Tensor]:
    """Parameters by their names in Θ: the last number of the path says which part it is."""
    found = {"kernels.0.log_amplitude": torch.tensor(np.log(PHI0))}
    for name in prior.positives:
        part = int(name.split(".")[-2]) if name.count(".") > 2 else 0
        part = 0 if name == "kernels.0.log_phi1" else part
        value = {"log_phi1": PHI1[part], "log_period": PERIOD, "log_ratio": RATIO}[name.rpartition(".")[2]]
        found[name] = torch.tensor([np.log(value)])
    return found


@pytest.mark.parametrize("text", SAME)
def test_a_regression_is_the_gp_of_scikit_learn(text):
    rng = np.random.default_rng(0)
    x, x_new = rng.normal(size=(30, 1)), rng.normal(size=(11, 1))
    y = np.sin(3.0 * x[:, 0]) + 0.2 * rng.normal(size=30)
    prior = Prior(kernels=[text], dims=1, outputs={"y": 1}, noise={"y": NOISE})
    prior.load(values(prior) | {"mixing.y": torch.ones(1, 1)})
    rows = Rows.of(torch.tensor(x), {"y": (torch.arange(30), torch.tensor(y))}, {"y": Gaussian()})
    model = ExactModel(prior, rows)
    posterior = infer(model)
    mean, cov = predict_latents(model, posterior.q, torch.tensor(x_new)).outputs(prior.W.detach())

    oracle = GaussianProcessRegressor(constant(PHI0) * SAME[text], alpha=NOISE, optimizer=None).fit(x, y)
    oracle_mean, oracle_sd = oracle.predict(x_new, return_std=True)
    np.testing.assert_allclose(posterior.bound, oracle.log_marginal_likelihood_value_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mean[:, 0], oracle_mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(cov[:, 0, 0], oracle_sd**2, rtol=0, atol=1e-9)


def test_several_inputs_each_with_a_period_are_the_kernel_of_gpytorch():
    """gpytorch's length-scale is that of the sine squared: exp(−2 Σ sin²(π d/p)/λ), λ = 1/φ₁."""
    rng = np.random.default_rng(1)
    x, x2 = torch.tensor(rng.normal(size=(9, 3))), torch.tensor(rng.normal(size=(7, 3)))
    phi1, period = torch.tensor(rng.uniform(0.3, 3.0, 3)), torch.tensor(rng.uniform(0.5, 3.0, 3))
    oracle = gpytorch.kernels.PeriodicKernel(ard_num_dims=3).double()
    oracle.lengthscale, oracle.period_length = 1.0 / phi1, period
    with torch.no_grad():
        theirs = oracle(x, x2).to_dense()
    np.testing.assert_allclose(periodic(x, x2, {"phi1": phi1, "period": period}), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", ["rbf + matern52", "rbf * matern52"])
def test_sums_and_products_are_those_of_gpytorch(text):
    rng = np.random.default_rng(2)
    x, x2 = torch.tensor(rng.normal(size=(9, 3))), torch.tensor(rng.normal(size=(7, 3)))
    first, second = gpytorch.kernels.RBFKernel().double(), gpytorch.kernels.MaternKernel(nu=2.5).double()
    first.lengthscale, second.lengthscale = torch.tensor(PHI1, dtype=torch.float64) ** -0.5
    if "+" in text:
        both = [gpytorch.kernels.ScaleKernel(one).double() for one in (first, second)]
        for kernel, weight in zip(both, WEIGHTS, strict=True):
            kernel.outputscale = torch.tensor(weight)
        oracle = both[0] + both[1]
    else:
        oracle = first * second
    with torch.no_grad():
        theirs = oracle(x, x2).to_dense()
    phi = {"0.phi1": PHI1[0], "1.phi1": PHI1[1], "ratio": RATIO}
    ours = kernel_of(text)(x, x2, {name: torch.tensor([value], dtype=torch.float64) for name, value in phi.items()})
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("text", ["periodic", "rbf + periodic", "matern52 * (linear + laplace)"])
def test_gradients_of_the_bound_are_those_of_finite_differences(text, per_dimension):
    rng = np.random.default_rng(3)
    x, y = torch.tensor(rng.normal(size=(12, 2))), torch.tensor(rng.normal(size=12))
    prior = Prior(kernels=[text, "rbf"], dims=2, outputs={"y": 1}, noise={"y": 0.2}, per_dimension=per_dimension)
    prior.load({name: torch.tensor(0.4 * rng.normal(size=tuple(v.shape))) for name, v in prior.state().items()})
    rows = Rows.of(x, {"y": (torch.arange(12), y)}, {"y": Gaussian()})

    def bound(theta: Prior) -> torch.Tensor:
        model = ExactModel(theta, rows)
        return model.bound(infer(model).q)

    names = list(prior.parameters)
    found = torch.autograd.grad(bound(prior), list(prior.parameters.values()))
    for name, gradient in zip(names, found, strict=True):
        for i in range(gradient.numel()):
            both = []
            for sign in (1.0, -1.0):
                state = prior.state()
                state[name].view(-1)[i] += sign * 1e-5
                with torch.no_grad():
                    both.append(bound(prior.with_values(state)).item())
            assert gradient.reshape(-1)[i].item() == pytest.approx((both[0] - both[1]) / 2e-5, abs=1e-6), name
