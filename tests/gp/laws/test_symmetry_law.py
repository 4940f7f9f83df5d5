"""Names and order mean nothing: rows, inputs, tasks and classes may be permuted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyfed.gp import Prior
from problems import Problem, assert_same, law, normal, predict, problems, readouts

seeds = st.integers(0, 2**16)


def new_inputs(problem: Problem, rng: np.random.Generator) -> Tensor:
    return torch.cat([problem.x[:2], normal(rng, 4, problem.x.shape[1])])


def like(prior: Prior, outputs: dict[str, int]) -> Prior:
    """A prior of other outputs, with the kernels of this one."""
    per_dimension = any(len(value) > 1 for name, value in prior.state().items() if "log_phi1" in name)
    noise = {task: 1.0 for task in outputs if prior.noise_of(task) is not None}
    new = Prior(kernels=prior.kernels, dims=prior.dims, outputs=outputs, noise=noise, per_dimension=per_dimension)
    return new.load({name: value for name, value in prior.state().items() if name in new.parameters})


def assert_equivalent(a: Problem, b: Problem, x: Tensor) -> None:
    bound_a, latents_a = predict(a, x)
    bound_b, latents_b = predict(b, x)
    assert bound_a == pytest.approx(bound_b, rel=1e-10, abs=1e-10)
    assert_same(latents_a, latents_b)


@given(problem=problems(), seed=seeds)
@law(20)
def test_the_order_of_the_data_means_nothing(problem, seed):
    rng = np.random.default_rng(seed)
    order = {task: torch.as_tensor(rng.permutation(len(at))) for task, (at, _) in problem.observations.items()}
    shuffled = {task: (at[order[task]], y[order[task]]) for task, (at, y) in problem.observations.items()}
    assert_equivalent(problem, problem.seeing(shuffled), new_inputs(problem, rng))


@given(problem=problems(), seed=seeds)
@law(20)
def test_the_order_of_the_inputs_means_nothing(problem, seed):
    rng = np.random.default_rng(seed)
    order = torch.as_tensor(rng.permutation(len(problem.x)))
    place = torch.argsort(order)
    moved = {task: (place[at], y) for task, (at, y) in problem.observations.items()}
    other = replace(problem, x=problem.x[order], observations=moved)
    assert_equivalent(problem, other, new_inputs(problem, rng))


@given(problem=problems(), seed=seeds)
@law(20)
def test_inputs_may_be_shared_or_repeated(problem, seed):
    rng = np.random.default_rng(seed)
    at = torch.cat([at for at, _ in problem.observations.values()])
    ends = np.cumsum([0] + [len(y) for _, y in problem.observations.values()])
    own = {
        task: (torch.arange(start, stop), y)
        for (task, (_, y)), start, stop in zip(problem.observations.items(), ends, ends[1:], strict=False)
    }
    assert_equivalent(problem, replace(problem, x=problem.x[at], observations=own), new_inputs(problem, rng))


@given(problem=problems(min_tasks=2), seed=seeds)
@law(20)
def test_the_order_of_the_tasks_means_nothing(problem, seed):
    rng = np.random.default_rng(seed)
    names = [list(problem.likelihoods)[i] for i in rng.permutation(len(problem.likelihoods))]
    likelihoods = {name: problem.likelihoods[name] for name in names}
    prior = like(problem.prior, {name: of.n_outputs for name, of in likelihoods.items()})
    assert_equivalent(problem, replace(problem, prior=prior, likelihoods=likelihoods), new_inputs(problem, rng))


@pytest.mark.parametrize("kind", ["one-vs-each", "logistic-softmax"])
@given(data=st.data(), seed=seeds)
@law(15)
def test_the_order_of_the_classes_means_nothing(kind, data, seed):
    problem = data.draw(problems(kinds=[kind, "gaussian"], max_tasks=3))
    rng = np.random.default_rng(seed)
    x = new_inputs(problem, rng)
    prior = like(problem.prior, problem.prior.outputs)
    observations, orders = dict(problem.observations), {}
    for task, of in problem.likelihoods.items():
        orders[task] = order = torch.as_tensor(rng.permutation(of.n_outputs))
        prior.load({f"mixing.{task}": problem.prior.W_of(task).detach()[order]})
        if of.n_outputs > 1:
            at, y = problem.observations[task]
            observations[task] = (at, torch.argsort(order)[y.long()].double())
    renamed = replace(problem, prior=prior, observations=observations)
    assert_equivalent(problem, renamed, x)

    before, after = (readouts(p, predict(p, x)[1]) for p in (problem, renamed))
    for task, order in orders.items():
        if "proba" in before[task]:
            torch.testing.assert_close(before[task]["proba"][:, order], after[task]["proba"], rtol=0.0, atol=1e-10)


@given(problem=problems(kinds=["one-vs-each", "bernoulli"], max_tasks=3), seed=seeds)
@law(15)
def test_what_all_classes_share_means_nothing_to_one_vs_each(problem, seed):
    rng = np.random.default_rng(seed)
    x = new_inputs(problem, rng)
    prior = like(problem.prior, problem.prior.outputs)
    shifts = {task: normal(rng, prior.n_latents) for task, of in problem.likelihoods.items() if of.n_outputs > 1}
    prior.load({f"mixing.{task}": problem.prior.W_of(task).detach() + by for task, by in shifts.items()})
    shifted = replace(problem, prior=prior)
    assert_equivalent(problem, shifted, x)
    before, after = (readouts(p, predict(p, x)[1]) for p in (problem, shifted))
    for task in shifts:
        torch.testing.assert_close(before[task]["proba"], after[task]["proba"], rtol=0.0, atol=1e-10)
