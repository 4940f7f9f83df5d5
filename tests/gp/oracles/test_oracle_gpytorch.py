"""Several regression tasks against gpytorch: the linear model of coregionalisation, solved exactly.

Each latent is an index kernel w_b w_bᵀ times a base kernel, and each row carries the number of its task and its
task's noise, so every task may have inputs of its own.
"""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from oracle_problems import Problem, Task, random_problem

from polyfed.gp import infer, predict_latents

BASE = {
    "rbf": lambda dims: gpytorch.kernels.RBFKernel(ard_num_dims=dims),
    "matern32": lambda dims: gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=dims),
    "matern52": lambda dims: gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=dims),
}


class Coregionalised(gpytorch.models.ExactGP):
    def __init__(self, problem: Problem, inputs, y, noise) -> None:
        super().__init__(inputs, y, gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise))
        self.mean_module = gpytorch.means.ZeroMean()
        self.index, self.base = torch.nn.ModuleList(), torch.nn.ModuleList()
        for b, name in enumerate(problem.kernels):
            base = BASE[name](problem.x.shape[1]).double()
            base.lengthscale = torch.tensor(1.0 / np.sqrt(problem.phi1[b]))
            index = gpytorch.kernels.IndexKernel(num_tasks=len(problem.W), rank=1).double()
            with torch.no_grad():
                index.covar_factor.copy_(torch.tensor(problem.W[:, b : b + 1] * problem.amplitude[b] ** 0.5))
                index.raw_var.fill_(-torch.inf)  # softplus(−∞) = 0: w_b w_bᵀ and nothing on the diagonal
            self.base.append(base)
            self.index.append(index)

    def forward(self, x, task):
        covariance = sum(base(x).mul(index(task)) for base, index in zip(self.base, self.index, strict=True))
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)


def regression_problem(seed: int) -> Problem:
    """Three tasks of different sizes and noises, at different inputs."""
    rng = np.random.default_rng(seed)
    kernels = tuple(str(name) for name in rng.choice(list(BASE), int(rng.integers(1, 4))))
    blank = random_problem(("gaussian",) * 3, seed, n_inputs=45, kernels=kernels)
    tasks, start = {}, 0
    for (name, task), n in zip(blank.tasks.items(), (20, 8, 17), strict=True):
        at = np.arange(start, start + n)
        y = np.sin(2.0 * blank.x[at, 0]) * task.W.sum() + 0.3 * rng.normal(size=n)
        tasks[name] = Task("gaussian", at, y, task.W, task.noise)
        start += n
    return Problem(blank.x, blank.kernels, blank.amplitude, blank.phi1, tasks)


# gpytorch looks up its index kernel through a sparse tensor, of which torch warns once.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("seed", range(6))
def test_regression_tasks_are_the_coregionalised_gp_of_gpytorch(seed):
    problem = regression_problem(seed)
    tasks = list(problem.tasks.values())
    at = np.concatenate([task.at for task in tasks])
    number = torch.cat([torch.full((len(task.y), 1), i) for i, task in enumerate(tasks)])
    y = torch.tensor(np.concatenate([task.y for task in tasks]))
    noise = torch.tensor(np.concatenate([np.full(len(task.y), task.noise) for task in tasks]))
    oracle = Coregionalised(problem, (torch.tensor(problem.x[at]), number), y, noise)
    x_new = torch.tensor(np.random.default_rng(seed).uniform(-2.0, 2.0, (10, 2)))

    model = problem.model()
    posterior = infer(model)
    mean, cov = predict_latents(model, posterior.q, x_new).outputs(model.prior.W.detach())

    exact = (
        gpytorch.settings.fast_computations(False, False, False),
        gpytorch.settings.max_cholesky_size(10_000),
        gpytorch.settings.fast_pred_var(False),
    )
    with exact[0], exact[1], exact[2], torch.no_grad():
        oracle.train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(oracle.likelihood, oracle)
        log_evidence = evidence(oracle(*oracle.train_inputs), y) * len(y)
        np.testing.assert_allclose(posterior.bound, log_evidence, rtol=0, atol=1e-9)

        oracle.eval()
        for i in range(len(tasks)):
            new = oracle(x_new, torch.full((len(x_new), 1), i))
            np.testing.assert_allclose(mean[:, i], new.mean, rtol=0, atol=1e-9)
            np.testing.assert_allclose(cov[:, i, i], new.variance, rtol=0, atol=1e-9)
