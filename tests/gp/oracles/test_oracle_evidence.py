"""The bound against the evidence itself, by importance sampling, on clients with mixed and correlated tasks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from oracle_likelihoods import DOF, KINDS, LOGISTIC, SOFTMAX, TYPICAL
from oracle_problems import Problem, random_problem
from oracle_samplers import ImportanceSampler
from scipy import stats
from scipy.special import expit, logsumexp

from polyfed.gp import ExactModel, Posterior, infer

SEEDS = range(8)


@cache
def solved(kind: str, seed: int, bound: str) -> tuple[Problem, ExactModel, Posterior]:
    """A client with a task of this kind, a regression and a binary one."""
    problem = random_problem((kind, "gaussian", "bernoulli"), seed)
    model = problem.model(bound)
    posterior = infer(model, tolerance=1e-10, max_steps=2000)
    assert posterior.converged
    return problem, model, posterior


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_stays_below_the_evidence(kind, seed):
    posterior = solved(kind, seed, "polya-gamma")[2]
    # The tighter posterior makes the better proposal, where there is one.
    best = solved(kind, seed, "gaussian" if kind in LOGISTIC else "polya-gamma")
    sampler = ImportanceSampler(*best, seed)
    estimate, error = sampler.log_evidence()
    assert error < 0.02, "the estimate is too rough to judge by"
    assert posterior.bound <= estimate + 4.0 * error

    if kind in LOGISTIC:
        tighter = best[2].bound
        assert posterior.bound <= tighter + 1e-9
        assert tighter <= estimate + 4.0 * error
    if kind == "one-vs-each":
        softmax, error = sampler.log_evidence(instead={"task0": SOFTMAX})
        assert posterior.bound <= softmax + 4.0 * error


@pytest.mark.parametrize("seed", SEEDS)
def test_bound_of_regression_tasks_is_the_evidence(seed):
    problem = random_problem(("gaussian",) * 3, seed)
    model = problem.model()
    posterior = infer(model)
    estimate, error = ImportanceSampler(problem, model, posterior, seed).log_evidence()
    assert abs(posterior.bound - estimate) <= 4.0 * error

    A = np.concatenate([problem.design[task.at, i] for i, task in enumerate(problem.tasks.values())])
    noise = np.concatenate([np.full(len(task.y), task.noise) for task in problem.tasks.values()])
    y = np.concatenate([task.y for task in problem.tasks.values()])
    exact = stats.multivariate_normal(cov=A @ A.T + np.diag(noise)).logpdf(y)
    assert posterior.bound == pytest.approx(exact, abs=1e-9, rel=0)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("kind", "bound"), [*((kind, "polya-gamma") for kind in KINDS), *((kind, "gaussian") for kind in LOGISTIC)]
)
def test_bound_is_local_bounds_minus_divergence(kind, bound, seed):
    """KL(q‖p) from the dense posterior of the whitened coordinates, whatever the rank of K."""
    problem, model, posterior = solved(kind, seed, bound)
    A, h, r = problem.row_design(model), posterior.q.h.numpy(), posterior.q.r.numpy()
    cov = np.linalg.inv(np.eye(problem.dims) + A.T @ (h[:, None] * A))
    mean = cov @ A.T @ r
    divergence = 0.5 * (np.trace(cov) + mean @ mean - problem.dims - np.linalg.slogdet(cov)[1])
    m, v = A @ mean, np.einsum("nu,uv,nv->n", A, cov, A)

    np.testing.assert_allclose(posterior.q.m, m, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.q.v, v, rtol=0, atol=1e-9)
    local = model.rows.local_bound(model.prior, torch.tensor(m), torch.tensor(v)).item()
    assert posterior.bound == pytest.approx(local - divergence, abs=1e-9, rel=0)


def test_formulas_of_the_oracle_are_those_of_scipy():
    f = np.linspace(-3.0, 3.0, 13)[:, None, None]
    y, pairs = np.array([0.0, 1.0, 4.0]), np.array([[0.0, 1.0], [2.0, 5.0], [6.0, 6.0]])
    score = f[..., 0]
    mean_bare, mean_typical = 1.7 * np.exp(score), TYPICAL * np.exp(score)
    expected = {
        "gaussian": (y, stats.norm.logpdf(y, score, 1.7**0.5)),
        "student-t": (y, stats.t.logpdf(y, DOF, loc=score, scale=1.7**0.5)),
        "binomial": (pairs, stats.binom.logpmf(pairs[:, 0], pairs[:, 1], expit(score))),
        "negative-binomial": (y, stats.nbinom.logpmf(y, 1.7, 1.7 / (1.7 + mean_bare))),
        "negative-binomial-typical": (y, stats.nbinom.logpmf(y, 1.7, 1.7 / (1.7 + mean_typical))),
        "bernoulli": (np.array([-1.0, 1.0]), stats.bernoulli.logpmf([0, 1], expit(score))),
    }
    for kind, (labels, log_density) in expected.items():
        scores = np.broadcast_to(f, (13, len(labels), 1))
        np.testing.assert_allclose(KINDS[kind].log_density(labels, scores, 1.7), log_density, atol=1e-12)


@pytest.mark.parametrize("kind", ["logistic-softmax", "logistic-softmax-half"])
def test_class_densities_of_the_oracle_add_up_to_one(kind):
    f = np.random.default_rng(0).normal(size=(20, 3))
    log_p = [KINDS[kind].log_density(np.full(20, k), f, 1.0) for k in range(3)]
    np.testing.assert_allclose(logsumexp(log_p, axis=0), 0.0, atol=1e-12)
