"""One regression task against scikit-learn's Gaussian process, and the kernels against loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle_problems import kernel_matrix
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern
from sklearn.metrics.pairwise import laplacian_kernel

from polyfed.gp import ExactModel, Prior, Rows, infer, predict_latents
from polyfed.gp.kernels import KERNELS, laplace
from polyfed.gp.likelihoods import Gaussian

SKLEARN_SHAPE = {
    "rbf": lambda scale: RBF(scale, length_scale_bounds="fixed"),
    "matern32": lambda scale: Matern(scale, length_scale_bounds="fixed", nu=1.5),
    "matern52": lambda scale: Matern(scale, length_scale_bounds="fixed", nu=2.5),
    "linear": lambda scale: DotProduct(0.0, sigma_0_bounds="fixed"),
    "affine": lambda scale: DotProduct(0.0, sigma_0_bounds="fixed"),  # of inputs with a constant among them
}
DIMS = 3


def one_task(name: str, x, y, *, phi0: float, phi1, w: float, noise: float) -> ExactModel:
    prior = Prior(kernels=[name], dims=DIMS, outputs={"y": 1}, noise={"y": noise}, per_dimension=len(phi1) > 1)
    state = {
        "kernels.0.log_amplitude": torch.tensor(np.log(phi0)),
        "mixing.y": torch.tensor([[w]], dtype=torch.float64),
    }
    if KERNELS[name].parameters:
        state["kernels.0.log_phi1"] = torch.tensor(np.log(phi1))
    seen = {"y": (torch.arange(len(x)), torch.tensor(y))}
    return ExactModel(prior.load(state), Rows.of(torch.tensor(x), seen, {"y": Gaussian()}))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("n_scales", [1, DIMS])
@pytest.mark.parametrize("name", SKLEARN_SHAPE)
def test_one_regression_task_is_the_gp_of_scikit_learn(name, n_scales, seed):
    rng = np.random.default_rng(seed)
    x, x_new = rng.normal(size=(40, DIMS)), rng.normal(size=(15, DIMS))
    y = np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=40)
    phi0, w, noise = rng.uniform(0.5, 2.0), rng.normal(), rng.uniform(0.02, 0.3)
    phi1 = rng.uniform(0.2, 3.0, n_scales)

    model = one_task(name, x, y, phi0=phi0, phi1=phi1, w=w, noise=noise)
    posterior = infer(model)
    mean, cov = predict_latents(model, posterior.q, torch.tensor(x_new)).outputs(model.prior.W.detach())

    if name == "affine":
        x, x_new = (np.column_stack([t, np.full(len(t), np.sqrt(DIMS))]) for t in (x, x_new))
    if name in ("linear", "affine"):  # ours scales its inputs to length one
        x, x_new = (t / np.linalg.norm(t, axis=1, keepdims=True) for t in (x, x_new))
    scale = 1.0 / np.sqrt(phi1) if n_scales > 1 else 1.0 / np.sqrt(phi1[0])
    kernel = ConstantKernel(phi0 * w**2, "fixed") * SKLEARN_SHAPE[name](scale)
    oracle = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(x, y)
    oracle_mean, oracle_sd = oracle.predict(x_new, return_std=True)

    assert posterior.converged
    np.testing.assert_allclose(posterior.bound, oracle.log_marginal_likelihood_value_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mean[:, 0], oracle_mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(cov[:, 0, 0], oracle_sd**2, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_scales", [1, DIMS])
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "periodic"])
def test_kernels_are_the_formulas_of_their_table(name, offset, n_scales):
    rng = np.random.default_rng(3)
    x, x2 = offset + rng.normal(size=(9, DIMS)), offset + rng.normal(size=(7, DIMS))
    x2[:2] = x[:2]  # distance zero, off the diagonal
    phi1 = rng.uniform(0.2, 3.0, n_scales)
    kernel, phi = KERNELS[name], {"phi1": torch.tensor(phi1)}

    matrix = kernel(torch.tensor(x), torch.tensor(x2), phi)
    diagonal = kernel.diagonal(torch.tensor(x), phi)

    np.testing.assert_allclose(matrix, kernel_matrix(name, x, x2, phi1), rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        diagonal, np.diag(kernel_matrix(name, x, x, phi1)), rtol=0, atol=1e-14 if offset == 0.0 else 1e-11
    )


def test_laplace_is_the_laplacian_kernel_of_scikit_learn():
    rng = np.random.default_rng(4)
    x, x2 = rng.normal(size=(9, DIMS)), rng.normal(size=(7, DIMS))
    ours = laplace(torch.tensor(x), torch.tensor(x2), {"phi1": torch.tensor([0.8], dtype=torch.float64)})
    np.testing.assert_allclose(ours, laplacian_kernel(x, x2, gamma=0.4), rtol=0, atol=1e-14)
