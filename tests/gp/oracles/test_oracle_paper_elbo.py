"""The four terms of the ELBO as they stand on paper (elbo-r), from a dense K⁻¹, and the closed-form noise."""

from __future__ import annotations

from math import log, pi

import numpy as np
import pytest
import torch
from oracle_problems import random_problem
from scipy.optimize import minimize_scalar
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from polyfed.gp import ExactModel, Prior, Rows, infer
from polyfed.gp.likelihoods import Gaussian, StudentT


def well_conditioned(seed: int):
    """A regression and a binary task on rough kernels; no input is seen twice by a task, so K⁻¹ exists."""
    problem = random_problem(("gaussian", "bernoulli"), seed, n_inputs=16, kernels=("laplace", "matern32"))
    for i, task in enumerate(problem.tasks.values()):
        unique = np.unique(task.at, return_index=True)[1]
        problem.tasks[f"task{i}"] = type(task)(task.kind, task.at[unique], task.y[unique], task.W, task.noise)
    return problem


@pytest.mark.parametrize("seed", range(6))
def test_bound_is_the_sum_of_the_four_terms(seed):
    problem = well_conditioned(seed)
    regression, binary = problem.tasks.values()
    posterior = infer(problem.model(), tolerance=0.0, max_steps=300)

    rows = np.concatenate([problem.design[regression.at, 0], problem.design[binary.at, 1]])
    K = rows @ rows.T
    assert np.linalg.cond(K) < 1e5
    K_inv = np.linalg.inv(K)
    N, r, c = len(K), slice(0, len(regression.y)), slice(len(regression.y), None)

    # equ:mf_local_q1 and equ:mf_local_q2 iterated in their printed form, from m = 0
    omega = np.full(len(binary.y), 0.25)
    for _ in range(300):
        H = np.diag(np.concatenate([np.full(len(regression.y), 1.0 / regression.noise), omega]))
        Sigma = np.linalg.inv(H + K_inv)
        m = Sigma @ H @ np.concatenate([regression.y, 0.5 * binary.y / omega])
        f_tilde = np.sqrt(m**2 + np.diag(Sigma))
        previous, omega = omega, np.tanh(f_tilde[c] / 2) / (2 * f_tilde[c])
        if np.abs(omega - previous).max() < 1e-15:
            break

    sigma2, y = regression.noise, regression.y
    a = (-0.5 * log(2 * pi * sigma2) - (y**2 - 2 * y * m[r] + f_tilde[r] ** 2) / (2 * sigma2)).sum()
    b = (0.5 * binary.y * m[c] - 0.5 * f_tilde[c] ** 2 * omega - log(2)).sum()
    kl_omega = (np.log(np.cosh(f_tilde[c] / 2)) - f_tilde[c] / 4 * np.tanh(f_tilde[c] / 2)).sum()
    kl_f = 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(Sigma)[1] - N + np.trace(K_inv @ Sigma) + m @ K_inv @ m)

    assert posterior.bound == pytest.approx(a + b - kl_omega - kl_f, abs=1e-9, rel=0)
    # The bound is flat at its maximum: its last digit leaves q free in the eighth.
    np.testing.assert_allclose(posterior.q.m, m, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.q.v, np.diag(Sigma), rtol=0, atol=1e-8)


def noisy_sine(seed: int, noise: float, likelihood: Gaussian | StudentT) -> tuple[ExactModel, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3.0, 3.0, (50, 1))
    y = np.sin(2.0 * x[:, 0]) + 0.4 * rng.normal(size=50)
    prior = Prior(kernels=["matern52"], dims=1, outputs={"y": 1}, noise={"y": noise})
    seen = {"y": (torch.arange(50), torch.tensor(y))}
    return ExactModel(prior, Rows.of(torch.tensor(x), seen, {"y": likelihood})), x, y


def closed_form_noise(model: ExactModel, posterior) -> torch.Tensor:
    total, count = model.rows.noise_statistics(model.prior, posterior.q.m, posterior.q.v)["y"]
    assert count.item() == 50.0
    return total / count


def learned_noise(model: ExactModel) -> tuple[float, ExactModel]:
    """The closed form and inference in turn, until neither moves."""
    for _ in range(2000):
        posterior = infer(model, tolerance=1e-10, max_steps=500)
        sigma2 = closed_form_noise(model, posterior)
        moved = float((sigma2.log() - model.prior.noise_of("y").detach().log()).abs())
        model.prior.load({"noise.y": sigma2.log()})
        if moved < 1e-7:
            break
    return sigma2.item(), model


def test_closed_form_noise_is_where_the_derivative_vanishes():
    model, _, _ = noisy_sine(0, 0.5, Gaussian())
    posterior = infer(model)

    def derivative() -> float:
        log_noise = model.prior.parameters["noise.y"]
        return torch.autograd.grad(model.bound(posterior.q), log_noise)[0].item()

    assert abs(derivative()) > 1.0
    sigma2 = closed_form_noise(model, posterior)
    model.prior.load({"noise.y": sigma2.log()})
    assert derivative() == pytest.approx(0.0, abs=1e-9)

    # optimial sigma, and term (a) of elbo-r maximised by search
    y, m, v = model.rows.blocks[0].y.numpy(), posterior.q.m.numpy(), posterior.q.v.numpy()
    assert sigma2.item() == pytest.approx(np.mean(y**2 - 2 * y * m + m**2 + v), rel=1e-12)
    best = minimize_scalar(
        lambda s: np.sum(0.5 * s + 0.5 * ((y - m) ** 2 + v) * np.exp(-s)), bounds=(-6, 3), method="bounded"
    )
    assert sigma2.item() == pytest.approx(np.exp(best.x), rel=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_closed_form_noise_finds_the_maximum_of_the_evidence(seed):
    model, x, y = noisy_sine(seed, 1.0, Gaussian())
    sigma2, _ = learned_noise(model)
    kernel = ConstantKernel(1.0, "fixed") * Matern(1.0, "fixed", nu=2.5) + WhiteKernel(1.0, (1e-4, 1e2))
    oracle = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=3, random_state=0).fit(x, y)
    assert sigma2 == pytest.approx(oracle.kernel_.k2.noise_level, rel=1e-4)


def test_closed_form_noise_of_student_t_finds_the_maximum_of_the_bound():
    model, _, _ = noisy_sine(0, 1.0, StudentT())
    sigma2, model = learned_noise(model)

    def loss(log_noise: float) -> float:
        model.prior.load({"noise.y": torch.tensor(log_noise, dtype=torch.float64)})
        return -infer(model, tolerance=1e-12, max_steps=500).bound

    best = minimize_scalar(loss, bounds=(-6.0, 2.0), method="bounded", options={"xatol": 1e-5})
    assert sigma2 == pytest.approx(np.exp(best.x), rel=1e-4)
