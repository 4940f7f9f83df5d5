"""The Gaussian of the rows: a covariance that labels only shrink, its derivative, and rows that say nothing."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyfed.gp import predict_latents
from polyfed.gp.linalg import log_z, solve
from problems import law, normal, problems, run

sizes = st.tuples(st.integers(1, 6), st.integers(1, 6))  # rows, and the rank of their covariance
seeds = st.integers(0, 2**16)


def factor_and_sites(rows: int, rank: int, rng: np.random.Generator, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    return normal(rng, *batch, rows, rank), normal(rng, *batch, rows), normal(rng, *batch, rows).exp()


def naive_log_z(K: Tensor, r: Tensor, h: Tensor) -> Tensor:
    """−½ log|I + KH| + ½ rᵀ(I + KH)⁻¹ K r, as one would write it first."""
    A = torch.eye(len(r), dtype=K.dtype) + K * h
    return -0.5 * torch.logdet(A) + 0.5 * r @ torch.linalg.solve(A, K @ r)


@given(problem=problems(), seed=seeds)
@law(40)
def test_the_posterior_covariance_lies_between_zero_and_the_prior(problem, seed):
    model = problem.model()
    q = run(model, steps=5).q
    K = model.K.detach()
    V = torch.linalg.solve_triangular(q.L, q.h.sqrt()[:, None] * K, upper=False)
    Sigma = K - V.mT @ V
    slack = 1e-10 * K.diagonal().max().clamp_min(1.0)
    assert torch.linalg.eigvalsh(Sigma).min() >= -slack
    assert (q.v >= 0.0).all()
    assert (q.v <= K.diagonal() + slack).all()
    torch.testing.assert_close(q.v, Sigma.diagonal(), rtol=1e-9, atol=slack.item())

    x = torch.cat([problem.x, normal(np.random.default_rng(seed), 5, problem.x.shape[1])])
    cov = predict_latents(model, q, x).cov
    z = problem.prior.eta(x)
    prior = torch.stack([problem.prior.latent_variance(b, z) for b in range(problem.prior.n_latents)], -1)
    assert torch.linalg.eigvalsh(cov).min() >= -slack
    assert torch.linalg.eigvalsh(torch.diag_embed(prior) - cov).min() >= -slack


@given(problem=problems())
@law(30)
def test_predictions_at_the_rows_are_the_marginals_of_the_rows(problem):
    model = problem.model()
    q = run(model, steps=5).q
    latents = predict_latents(model, q, model.rows.x[model.rows.at])
    a = model.a.detach()
    torch.testing.assert_close((a * latents.mean).sum(-1), q.m, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.einsum("nb,nbc,nc->n", a, latents.cov, a), q.v, rtol=1e-9, atol=1e-9)


# ---- logZ ----------------------------------------------------------------------------------------------------


@given(size=sizes, seed=seeds)
@law(40)
def test_log_z_and_its_derivative_are_those_of_the_naive_formula(size, seed):
    leaves = [t.requires_grad_() for t in factor_and_sites(*size, np.random.default_rng(seed))]
    F, r, h = leaves
    ours, naive = log_z(F @ F.mT, r, h), naive_log_z(F @ F.mT, r, h)
    torch.testing.assert_close(ours, naive, rtol=1e-10, atol=1e-10)
    for got, expected in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(naive, leaves), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)


@given(size=sizes, batch=st.lists(st.integers(1, 3), min_size=0, max_size=2), seed=seeds)
@law(15)
def test_the_derivative_of_a_batch_stands_the_gradcheck(size, batch, seed):
    inputs = [t.requires_grad_() for t in factor_and_sites(*size, np.random.default_rng(seed), *batch)]
    assert torch.autograd.gradcheck(lambda F, r, h: log_z(F @ F.mT, r, h), inputs)


@given(size=sizes, batch=st.integers(2, 4), seed=seeds)
@law(25)
def test_a_batch_is_its_problems_one_by_one(size, batch, seed):
    F, r, h = factor_and_sites(*size, np.random.default_rng(seed), batch)
    K = F @ F.mT
    together = solve(K, r, h)
    for i in range(batch):
        alone = solve(K[i], r[i], h[i])
        for name in ("m", "v", "alpha", "logz", "B_inv", "L"):
            torch.testing.assert_close(
                getattr(together, name)[i], getattr(alone, name), rtol=1e-10, atol=1e-10, msg=name
            )


# ---- rows that say nothing -----------------------------------------------------------------------------------


@given(size=sizes, extra=st.integers(1, 4), seed=seeds)
@law(40)
def test_rows_without_precision_change_nothing(size, extra, seed):
    rng = np.random.default_rng(seed)
    rows, rank = size
    F, r, h = factor_and_sites(rows + extra, rank, rng)
    K = F @ F.mT
    where = torch.as_tensor(rng.permutation(rows + extra)[:rows])  # the silent rows lie in between
    silent = torch.ones(rows + extra, dtype=torch.bool)
    silent[where] = False
    r[silent] = h[silent] = 0.0

    padded, bare = solve(K, r, h), solve(K[where][:, where], r[where], h[where])
    for name in ("m", "v", "alpha"):
        torch.testing.assert_close(getattr(padded, name)[where], getattr(bare, name), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(padded.logz, bare.logz, rtol=1e-10, atol=1e-10)
    assert (padded.alpha[silent] == 0.0).all()
