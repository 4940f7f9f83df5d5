"""The paper's own sparse posterior: what it prints, and the exact one where Z is all inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from polyfed.gp import Posterior, infer, predict_latents
from polyfed.gp.sparse import PaperSparseModel
from problems import KINDS, Problem, build, run


def converge(model) -> Posterior:
    return infer(model, tolerance=1e-12, max_steps=500)


def printed(problem: Problem, Z: Tensor, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q(f_Z) by the formulas as printed in proof:mf_inducing, one output for each task; and the moments at the data."""
    prior, rows = problem.prior, problem.rows()
    with torch.no_grad():
        W = prior.W.numpy()
        k_ZZ = [prior.latent_covariance(b, Z, Z).numpy() for b in range(prior.n_latents)]
        k_Zx = [prior.latent_covariance(b, Z, problem.x).numpy() for b in range(prior.n_latents)]
    T, M = len(W), len(Z)
    latents = range(prior.n_latents)

    def jittered(K: np.ndarray) -> np.ndarray:
        return K + 1e-8 * K.diagonal().max() * np.eye(len(K))

    K = jittered(np.block([[sum(W[i, b] * W[j, b] * k_ZZ[b] for b in latents) for j in range(T)] for i in range(T)]))
    own = [jittered(sum(W[i, b] ** 2 * k_ZZ[b] for b in latents)) for i in range(T)]
    cross = [sum(W[i, b] ** 2 * k_Zx[b] for b in latents) for i in range(T)]
    blocks = [rows.at[block.rows[:, 0]].numpy() for block in rows.blocks]
    P = [np.linalg.solve(own[i], cross[i][:, at]) for i, at in enumerate(blocks)]
    m, Sigma = np.zeros(T * M), K
    for _ in range(steps):
        H, v = np.zeros((T * M, T * M)), np.zeros(T * M)
        for i, block in enumerate(rows.blocks):
            part, y = slice(i * M, (i + 1) * M), block.y.numpy()
            if "gaussian" in block.task:
                D = np.full(len(y), 1.0 / prior.noise_of(block.task).item())
                v[part] = P[i] @ (D * y)
            else:
                c = np.sqrt((P[i].T @ m[part]) ** 2 + np.einsum("mn,mk,kn->n", P[i], Sigma[part, part], P[i]))
                D = np.tanh(c / 2.0) / (2.0 * c)
                v[part] = P[i] @ (y / 2.0)
            H[part, part] = P[i] @ np.diag(D) @ P[i].T
        Sigma = np.linalg.inv(H + np.linalg.inv(K))
        m = Sigma @ v
    parts = [slice(i * M, (i + 1) * M) for i in range(T)]
    at_data = np.concatenate([P[i].T @ m[part] for i, part in enumerate(parts)])
    variance = [np.einsum("mn,mk,kn->n", P[i], Sigma[part, part], P[i]) for i, part in enumerate(parts)]
    return m, Sigma, at_data, np.concatenate(variance)


@pytest.mark.parametrize("seed", range(4))
def test_the_papers_variant_is_what_the_paper_prints(seed):
    problem = build(["gaussian", "bernoulli"], seed=seed, sizes=9, kernels=["laplace", "laplace"])
    Z = problem.x[:5]
    model = PaperSparseModel(problem.prior, problem.rows(), Z)
    q = run(model, steps=6).q
    m, Sigma, at_data, variance = printed(problem, Z, 6)
    root = model.root.detach()
    w_cov = torch.cholesky_inverse(q.L)
    np.testing.assert_allclose((root @ q.beta).numpy(), m, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose((root @ w_cov @ root.mT).numpy(), Sigma, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(q.m.numpy(), at_data, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(q.v.numpy(), variance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kinds", [["gaussian", "bernoulli"], ["student-t", "binomial"]])
def test_the_papers_variant_with_all_inputs_is_the_exact_posterior(kinds):
    problem = build(kinds, seed=15, kernels=["laplace", "matern32"])
    exact, model = problem.model(), PaperSparseModel(problem.prior, problem.rows(), problem.x)
    a, b = converge(exact), converge(model)
    assert b.bound == pytest.approx(a.bound, abs=1e-5)
    torch.testing.assert_close(b.q.m, a.q.m, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(b.q.v, a.q.v, rtol=1e-5, atol=1e-5)
    seen, expected = predict_latents(model, b.q, problem.x), predict_latents(exact, a.q, problem.x)
    for task in problem.likelihoods:
        for mine, theirs in zip(seen.of(task), expected.of(task), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_papers_variant_bears_more_outputs_than_latents_and_knows_no_residual():
    problem = build(KINDS, seed=16, kernels=["rbf"])
    model = PaperSparseModel(problem.prior, problem.rows(), problem.x[:3])
    q = converge(model).q
    assert q.certificate.item() == 0.0
    far = torch.full((1, 2), 100.0, dtype=torch.float64)
    latents = predict_latents(model, q, far)
    T = len(problem.prior.W)
    assert latents.mean.shape == (1, T)
    torch.testing.assert_close(latents.cov[0], torch.zeros(T, T, dtype=torch.float64))
    assert torch.cat(list(latents.mixing.values())).tolist() == torch.eye(T).tolist()
    assert {task: len(W) for task, W in latents.mixing.items()} == problem.prior.outputs
