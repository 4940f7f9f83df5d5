"""What the certificate and the estimate of the gap say of the distance to the exact bound."""

from __future__ import annotations

import itertools
from math import log

import numpy as np
import pytest
import torch

from polyfed.gp import infer
from polyfed.gp.gap import _neighbours, gap_estimate
from polyfed.gp.inducing import choose_inducing
from polyfed.gp.latent_sparse import SparseModel
from polyfed.gp.linalg import solve
from problems import KINDS, Problem, build, normal, run

MIXED = list(KINDS)


def sparse_model(problem: Problem, M: int, method: str = "greedy") -> SparseModel:
    rows = problem.rows()
    return SparseModel(problem.prior, rows, choose_inducing(problem.prior, rows, M, method=method))


# ---- the estimate ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [["gaussian", "gaussian"], ["bernoulli", "student-t"], MIXED])
def test_one_block_of_all_rows_is_the_gap_with_fixed_sites(kinds):
    problem = build(kinds, seed=0, sizes=8)
    model = sparse_model(problem, 4)
    q = infer(model).q
    expected = solve(problem.model().K.detach(), q.r, q.h).logz - q.logz
    torch.testing.assert_close(gap_estimate(model, q), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_with_blocks_it_is_within_a_factor_of_two(seed):
    rng = np.random.default_rng(seed)
    kinds = [["gaussian"], ["gaussian", "bernoulli"], ["one-vs-each"], list(rng.choice(KINDS, 3))][seed % 4]
    kernels = [("rbf", "matern52"), ("laplace", "cauchy"), ("matern32",)][seed % 3]
    problem = build(kinds, seed=seed, sizes=90, kernels=kernels, dims=1 + seed % 3)
    exact = infer(problem.model()).bound
    for M in (3, 10, 30):
        model = sparse_model(problem, M, ["greedy", "uniform"][seed % 2])
        posterior = infer(model)
        gap = exact - posterior.bound
        if gap > 1e-3:  # below this the tolerance of inference is seen
            assert 0.5 < gap / gap_estimate(model, posterior.q, block=32).item() < 2.0


def test_it_is_nothing_where_nothing_is_missing():
    problem = build(MIXED, seed=1)
    model = SparseModel(problem.prior, problem.rows(), problem.x)
    assert 0.0 <= gap_estimate(model, infer(model).q).item() < 1e-5


@pytest.mark.parametrize("noise", [1e-6, 1e6])
def test_it_bears_any_noise(noise):
    problem = build(["gaussian"], seed=2, sizes=30)
    problem.prior.load({"noise.gaussian.0": torch.tensor(log(noise), dtype=torch.float64)})
    model = sparse_model(problem, 10)
    posterior = infer(model)
    gap = infer(problem.model()).bound - posterior.bound
    assert gap_estimate(model, posterior.q).item() == pytest.approx(gap, rel=1e-3, abs=1e-6)


def test_without_rows_there_is_no_gap():
    problem = build(["gaussian"], seed=3).seeing({})
    model = SparseModel(problem.prior, problem.rows(), problem.x)
    assert gap_estimate(model, infer(model).q).item() == 0.0


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_every_row_is_in_one_block(block):
    model = sparse_model(build(["gaussian", "one-vs-each"], seed=4, sizes=30), 4)
    parts = _neighbours(model, block)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(model.rows)))
    assert max(len(part) for part in parts) <= block


def test_a_block_holds_neighbours():
    problem = build(["gaussian"], seed=5, sizes=40, dims=1)
    model = sparse_model(problem, 4)
    ranges = sorted(
        (x.min().item(), x.max().item()) for x in (model.rows.x[model.rows.at[p]] for p in _neighbours(model, 10))
    )
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


# ---- the certificate, for regression --------------------------------------------------------------------------


@pytest.mark.parametrize("M", [2, 5, 10])
@pytest.mark.parametrize("seed", range(3))
def test_for_labels_of_the_model_the_mean_gap_is_one_to_two_certificates(seed, M):
    problem = build(["gaussian", "gaussian"], seed=seed, sizes=25)
    exact, model = problem.model(), sparse_model(problem, M)
    h = run(exact, steps=1).q.h
    K = exact.K.detach()
    y_cov = K + torch.diag(1.0 / h)
    # The mean over labels in closed form: E[yᵀCy] is a trace. logZ is quadratic in r = h y, so draws would do as well.
    root = torch.linalg.cholesky(y_cov)
    zero = torch.zeros_like(h)
    constant = solve(K, zero, h).logz - model.solve(h, zero).logz
    fits = [(solve(K, h * y, h).logz - model.solve(h, h * y).logz - constant) for y in root.mT]
    mean_gap, certificate = (constant + sum(fits)).item(), model.solve(h, zero).certificate.item()
    assert certificate * (1.0 - 1e-6) <= mean_gap <= 2.0 * certificate


@pytest.mark.parametrize("seed", range(5))
def test_for_any_labels_the_gap_is_bounded_by_certificate_and_residuals(seed):
    rng = np.random.default_rng(seed)
    problem = build(["gaussian", "gaussian"], seed=seed, sizes=20)
    labels = {task: (at, 10.0 * normal(rng, len(y))) for task, (at, y) in problem.observations.items()}
    problem = problem.seeing(labels)
    model, exact = sparse_model(problem, 4), problem.model()
    posterior = infer(model)
    q, gap = posterior.q, infer(exact).bound - posterior.bound
    with torch.no_grad():
        d = model.design_matrix(slice(None))[1]
    alpha = q.r - q.h * q.m
    assert gap <= (q.certificate + 0.5 * alpha.square().sum() * d.sum()).item()
    assert gap >= 0.0
