"""Two ways to say the same: two classes or one sign, a power or copies, a block-diagonal W or separate models."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.gp import Prior, predict_latents
from polyfed.gp.kernels import KERNELS
from polyfed.gp.likelihoods import Bernoulli, LogisticSoftmax, OneVsEach
from problems import (
    KINDS,
    Problem,
    assert_same,
    build,
    law,
    likelihood,
    normal,
    predict,
    problems,
    random_prior,
    readouts,
    run,
)

seeds = st.integers(0, 2**16)
kernels = st.lists(st.sampled_from(sorted(KERNELS)), min_size=1, max_size=3)


def two_classes(of: OneVsEach | LogisticSoftmax, names: list[str], seed: int, size: int) -> Problem:
    """Labels 0 and 1 of one task."""
    rng = np.random.default_rng(seed)
    likelihoods = {"y": of}
    prior = random_prior(likelihoods, kernels=names, dims=2, rng=rng)
    y = torch.as_tensor(rng.integers(0, 2, size), dtype=torch.float64)
    return Problem(prior, likelihoods, normal(rng, size, 2), {"y": (torch.arange(size), y)})


# ---- two classes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@given(names=kernels, seed=seeds, size=st.integers(1, 8), power=st.sampled_from([1.0, 0.5]))
@law(20)
def test_one_vs_each_of_two_classes_is_binary_classification(bound, names, seed, size, power):
    multi = two_classes(OneVsEach(2, bound=bound, power=power), names, seed, size)
    W = multi.prior.W_of("y").detach()
    prior = Prior(kernels=names, dims=2, outputs={"y": 1})
    prior.load(multi.prior.group("kernels") | {"mixing.y": W[1:] - W[:1]})
    at, y = multi.observations["y"]
    binary = Problem(prior, {"y": Bernoulli(bound=bound, power=power)}, multi.x, {"y": (at, 2.0 * y - 1.0)})

    x = normal(np.random.default_rng(seed + 1), 6, 2)
    bound_multi, latents_multi = predict(multi, x)
    bound_binary, latents_binary = predict(binary, x)
    assert bound_multi == pytest.approx(bound_binary, rel=1e-10, abs=1e-10)
    assert_same(latents_multi, latents_binary)
    proba = readouts(multi, latents_multi)["y"]["proba"]
    assert torch.allclose(proba.sum(-1), torch.ones(6, dtype=torch.float64))
    sure = readouts(binary, latents_binary)["y"]["proba"]
    torch.testing.assert_close(proba[:, 1], sure, rtol=0.0, atol=1e-6)


@given(names=kernels, seed=seeds, size=st.integers(1, 8))
@law(15)
def test_logistic_softmax_does_not_prefer_one_of_two_classes(names, seed, size):
    problem = two_classes(LogisticSoftmax(2), names, seed, size)
    prior = copy.deepcopy(problem.prior)
    prior.load({"mixing.y": problem.prior.W_of("y").detach().flip(0)})
    at, y = problem.observations["y"]
    swapped = replace(problem, prior=prior, observations={"y": (at, 1.0 - y)})

    x = normal(np.random.default_rng(seed + 1), 6, 2)
    (bound, latents), (bound_swapped, latents_swapped) = predict(problem, x), predict(swapped, x)
    assert bound == pytest.approx(bound_swapped, rel=1e-10, abs=1e-10)
    assert_same(latents, latents_swapped)
    proba = readouts(problem, latents)["y"]["proba"]
    torch.testing.assert_close(proba.flip(-1), readouts(swapped, latents_swapped)["y"]["proba"], rtol=0, atol=1e-10)


# ---- separate tasks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=3), seed=seeds)
@law(12)
def test_a_block_diagonal_mixing_is_separate_models(bound, kinds, seed):
    names = ["rbf", "matern52", "cauchy"][: len(kinds)]
    joint = build(kinds, seed=seed, kernels=names, bound=bound)
    for b, task in enumerate(joint.likelihoods):
        own = torch.zeros_like(joint.prior.W_of(task))
        own[:, b] = joint.prior.W_of(task).detach()[:, b]
        joint.prior.load({f"mixing.{task}": own})
    x = normal(np.random.default_rng(seed + 1), 6, 2)
    bound_joint, latents = predict(joint, x)

    total = 0.0
    for b, (task, of) in enumerate(joint.likelihoods.items()):
        has_noise = {task: 1.0} if of.initial_noise is not None else {}
        prior = Prior(kernels=[names[b]], dims=2, outputs={task: of.n_outputs}, noise=has_noise)
        state = joint.prior.state()
        kernel = {f"kernels.0.{p}": state[f"kernels.{b}.{p}"] for p in ("log_amplitude", "log_phi1")}
        noise = {f"noise.{task}": state[f"noise.{task}"]} if has_noise else {}
        prior.load(kernel | noise | {f"mixing.{task}": state[f"mixing.{task}"][:, b : b + 1]})
        alone = Problem(prior, {task: of}, joint.x, {task: joint.observations[task]})
        bound_alone, own = predict(alone, x)
        total += bound_alone
        torch.testing.assert_close(latents.mean[:, b], own.mean[:, 0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(latents.cov[:, b, b], own.cov[:, 0, 0], rtol=1e-9, atol=1e-9)
        others = [c for c in range(len(kinds)) if c != b]
        assert latents.cov[:, b, others].abs().max() <= 1e-12
    assert bound_joint == pytest.approx(total, rel=1e-9, abs=1e-9)


# ---- powers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@given(data=st.data(), seed=seeds, which=st.integers(0, 3))
@law(12)
def test_the_power_two_is_every_datum_twice(bound, data, seed, which):
    problem = data.draw(problems(bound=bound))
    task = list(problem.likelihoods)[which % len(problem.likelihoods)]
    likelihoods = copy.deepcopy(problem.likelihoods)
    likelihoods[task].power = 2.0
    at, y = problem.observations[task]
    twice = problem.seeing(problem.observations | {task: (at.repeat(2), torch.cat([y, y]))})

    x = normal(np.random.default_rng(seed), 5, problem.x.shape[1])
    bound_power, latents_power = predict(replace(problem, likelihoods=likelihoods), x)
    bound_twice, latents_twice = predict(twice, x)
    assert bound_power == pytest.approx(bound_twice, rel=1e-9, abs=1e-9)
    assert_same(latents_power, latents_twice, 1e-9)


@given(problem=problems(min_tasks=2), seed=seeds)
@law(20)
def test_the_power_zero_is_no_label_at_all(problem, seed):
    silent = next(iter(problem.likelihoods))
    likelihoods = copy.deepcopy(problem.likelihoods)
    likelihoods[silent].power = 0.0
    without = problem.seeing({task: seen for task, seen in problem.observations.items() if task != silent})

    x = normal(np.random.default_rng(seed), 5, problem.x.shape[1])
    bound_zero, latents_zero = predict(replace(problem, likelihoods=likelihoods), x)
    bound_without, latents_without = predict(without, x)
    assert bound_zero == pytest.approx(bound_without, rel=1e-10, abs=1e-10)
    assert_same(latents_zero, latents_without)


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@given(classes=st.integers(2, 6), names=kernels, seed=seeds)
@law(12)
def test_one_vs_each_of_power_two_over_k_never_falls(bound, classes, names, seed):
    power = 2.0 / classes
    problem = build(["one-vs-each"], seed=seed, sizes=6, kernels=names, classes=classes, bound=bound, powers=power)
    bounds = run(problem.model(), steps=25).bounds
    assert np.diff(bounds).min(initial=0.0) >= -1e-9


# ---- tasks without labels ------------------------------------------------------------------------------------


@given(problem=problems(), kind=st.sampled_from(KINDS), seed=seeds)
@law(20)
def test_a_task_without_labels_is_its_mixing_of_what_the_others_say(problem, kind, seed):
    rng = np.random.default_rng(seed)
    likelihoods = {"unseen": likelihood(kind)} | problem.likelihoods
    per_dimension = any(len(v) > 1 for name, v in problem.prior.state().items() if "log_phi1" in name)
    prior = random_prior(
        likelihoods, kernels=problem.prior.kernels, dims=problem.prior.dims, rng=rng, per_dimension=per_dimension
    )
    prior.load(problem.prior.state())
    larger = replace(problem, prior=prior, likelihoods=likelihoods)

    x = normal(rng, 5, problem.x.shape[1])
    bound_before, latents_before = predict(problem, x)
    model = larger.model()
    posterior = run(model)
    latents = predict_latents(model, posterior.q, x)
    assert posterior.bound == pytest.approx(bound_before, rel=1e-10, abs=1e-10)
    assert_same(latents, latents_before)

    W = prior.W_of("unseen").detach()
    mean, cov = latents.outputs(prior.W.detach())
    own = slice(0, len(W))
    torch.testing.assert_close(mean[:, own], latents_before.mean @ W.mT, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(cov[:, own, own], W @ latents_before.cov @ W.mT, rtol=1e-9, atol=1e-9)
    assert all(torch.isfinite(value).all() for value in readouts(larger, latents)["unseen"].values())
