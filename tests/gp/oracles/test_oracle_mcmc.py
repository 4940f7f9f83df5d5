"""Posterior means against long runs of two samplers that share nothing with the library.

Outputs of all tasks are compared at all inputs, also where a task has no label and where no task has one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from oracle_likelihoods import KINDS, LOGISTIC, Array
from oracle_problems import Problem, random_problem
from oracle_samplers import Moments, elliptical_slice, polya_gamma_gibbs

from polyfed.gp import infer, predict_latents

SEEDS = (2, 4)
pytestmark = pytest.mark.slow


def small_problem(kind: str, seed: int) -> Problem:
    second = "gaussian" if kind == "gaussian" else "bernoulli"
    return random_problem((kind, second), seed, n_inputs=8, n_data=8, unseen=1)


@cache
def sampled(kind: str, seed: int) -> Moments:
    return elliptical_slice(small_problem(kind, seed), seed)


def ours(problem: Problem, bound: str = "polya-gamma") -> tuple[Array, Array]:
    """Mean and standard deviation of all outputs at all inputs."""
    model = problem.model(bound)
    posterior = infer(model, tolerance=1e-10, max_steps=2000)
    mean, cov = predict_latents(model, posterior.q, torch.tensor(problem.x)).outputs(model.prior.W.detach())
    return mean.numpy(), cov.diagonal(dim1=-2, dim2=-1).sqrt().numpy()


@pytest.mark.parametrize("seed", SEEDS)
def test_slice_sampler_finds_the_exact_posterior_of_regression_tasks(seed):
    mean, sd = ours(small_problem("gaussian", seed))
    oracle = sampled("gaussian", seed)
    assert np.abs((mean - oracle.mean) / oracle.error).max() < 4.5
    np.testing.assert_allclose(oracle.sd, sd, rtol=0.05)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_posterior_is_close_to_the_sampled_one(kind, seed):
    mean, sd = ours(small_problem(kind, seed))
    oracle = sampled(kind, seed)
    assert (oracle.error / oracle.sd).max() < 0.03, "the chains are too short to judge by"
    assert (np.abs(mean - oracle.mean) / oracle.sd).max() < 0.25
    # Mean field is never wider than the truth, and must not collapse either.
    assert (sd / oracle.sd).max() < 1.04
    assert (sd / oracle.sd).min() > 0.5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", LOGISTIC)
def test_gaussian_bound_is_closer_still(kind, seed):
    mean, sd = ours(small_problem(kind, seed), "gaussian")
    oracle = sampled(kind, seed)
    assert (np.abs(mean - oracle.mean) / oracle.sd).max() < 0.08
    np.testing.assert_allclose(sd, oracle.sd, rtol=0.06)


def test_polya_gamma_gibbs_agrees_with_the_slice_sampler_and_with_us():
    problem = random_problem(("bernoulli", "gaussian"), 2, n_inputs=8, n_data=8, unseen=1)
    gibbs, by_slice = polya_gamma_gibbs(problem, 0), elliptical_slice(problem, 1)
    mean, _ = ours(problem)
    assert (np.abs(gibbs.mean - by_slice.mean) / np.hypot(gibbs.error, by_slice.error)).max() < 4.5
    np.testing.assert_allclose(gibbs.sd, by_slice.sd, rtol=0.04)
    assert (gibbs.error / gibbs.sd).max() < 0.03
    assert (np.abs(mean - gibbs.mean) / gibbs.sd).max() < 0.25
