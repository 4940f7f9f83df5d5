"""Hard data: the answer is finite numbers everywhere, or an error that names the task and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from polyfed.errors import NumericalError
from polyfed.gp import infer, predict_latents
from polyfed.gp.likelihoods import LogisticSoftmax, OneVsEach
from problems import KINDS, Problem, build, labels, normal

Change = Callable[[Problem], Problem]
SIZE = 9  # data of each task


def mixed(bound: str = "polya-gamma", **options) -> Problem:
    """All seven likelihoods on two latents."""
    return build(KINDS, seed=1, sizes=SIZE, dims=5, bound=bound, **options)


# ---- how a problem is made hard ------------------------------------------------------------------------------


def no_rows(problem: Problem) -> Problem:
    return problem.seeing({})


def no_inputs(problem: Problem) -> Problem:
    return replace(problem, x=problem.x[:0], observations={})


def one_row(problem: Problem) -> Problem:
    at, y = problem.observations["bernoulli.3"]
    return problem.seeing({"bernoulli.3": (at[:1], y[:1])})


def one_task_empty(problem: Problem) -> Problem:
    nothing = {"gaussian.0": (torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64))}
    return problem.seeing(problem.observations | nothing)


def one_class(problem: Problem) -> Problem:
    """Every label the same: constant targets, zero counts, no success, and two classes that are never seen."""
    return problem.seeing({task: (at, y[:1].expand_as(y)) for task, (at, y) in problem.observations.items()})


def last_class_unseen(problem: Problem) -> Problem:
    multi = {
        task: (at, y.clamp(max=1.0))
        for task, (at, y) in problem.observations.items()
        if problem.likelihoods[task].n_outputs > 1
    }
    return problem.seeing(problem.observations | multi)


def constant_targets(value: float) -> Change:
    def change(problem: Problem) -> Problem:
        same = {t: (at, torch.full_like(y, value)) for t, (at, y) in problem.observations.items() if t in REAL}
        return problem.seeing(problem.observations | same)

    return change


def inputs(of: Callable[[Tensor], Tensor]) -> Change:
    return lambda problem: replace(problem, x=of(problem.x))


def near_duplicates(x: Tensor) -> Tensor:
    return x[:1] + 1e-9 * x


def one_huge_column(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 1.0, 1e9, 1.0, 1.0], dtype=x.dtype)


def prior(*changes: tuple[str, float | Tensor]) -> Change:
    """Sets all parameters whose names hold a word."""

    def change(problem: Problem) -> Problem:
        for word, value in changes:
            state = problem.prior.state()
            named = {name: torch.as_tensor(value).expand_as(old) for name, old in state.items() if word in name}
            assert named, word
            problem.prior.load(named)
        return problem

    return change


def mixing(of: Callable[[Tensor], Tensor]) -> Change:
    def change(problem: Problem) -> Problem:
        problem.prior.load({name: of(W.detach()) for name, W in problem.prior.group("mixing").items()})
        return problem

    return change


def rank_one(W: Tensor) -> Tensor:
    return W[:, :1] * torch.tensor([1.0, -0.5], dtype=W.dtype)


def zero_row(W: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(W[:1]), W[1:]])


def big_counts(problem: Problem) -> Problem:
    at, y = problem.observations["negative-binomial.5"]
    return problem.seeing(problem.observations | {"negative-binomial.5": (at, y * 1e6 + 1e6)})


def many_trials(problem: Problem) -> Problem:
    at, y = problem.observations["binomial.4"]
    successes = torch.tensor([0.0, 1e6, 5e5, 1.0, 999_999.0], dtype=y.dtype).repeat(2)[:SIZE]
    y = torch.stack([successes, torch.full_like(successes, 1e6)], 1)
    return problem.seeing(problem.observations | {"binomial.4": (at, y)})


def far_targets(problem: Problem) -> Problem:
    """Regression targets of ±1e4, and mixing weights with which the other tasks must follow them."""
    signs = (-1.0) ** torch.arange(SIZE, dtype=torch.float64)
    far = {task: (problem.observations[task][0], 1e4 * signs) for task in REAL}
    return mixing(lambda W: 1e4 * W)(problem.seeing(problem.observations | far))


REAL = ("gaussian.0", "student-t.1")


def log_phi1(length_scale: float) -> tuple[str, float]:
    return "log_phi1", -2.0 * log(length_scale)


CASES: dict[str, Change] = {
    "no rows": no_rows,
    "no inputs": no_inputs,
    "one row": one_row,
    "one task empty": one_task_empty,
    "all labels the same": one_class,
    "a class never seen": last_class_unseen,
    "constant targets": constant_targets(3.0),
    "constant targets far away": constant_targets(1e8),
    "all inputs identical": inputs(lambda x: x[:1].expand_as(x).clone()),
    "all inputs zero": inputs(torch.zeros_like),
    "near-duplicates": inputs(near_duplicates),
    "far from the origin": inputs(lambda x: x + 1e9),
    "a column of scale 1e9": inputs(one_huge_column),
    "all columns of scale 1e9": inputs(lambda x: 1e9 * x),
    "length-scale 1e4": prior(log_phi1(1e4)),
    "length-scale 1e-4": prior(log_phi1(1e-4)),
    "amplitude 1e6": prior(("amplitude", log(1e6))),
    "amplitude 1e-8": prior(("amplitude", log(1e-8))),
    "noise 1e-8": prior(("noise", log(1e-8))),
    "noise 1e8": prior(("noise", log(1e8))),
    "W of rank one": mixing(rank_one),
    "a zero row of W": mixing(zero_row),
    "W all zero": mixing(torch.zeros_like),
    "counts of 1e6": big_counts,
    "1e6 trials": many_trials,
    "W large": mixing(lambda W: 1e4 * W),
    "scores of ±1e4": far_targets,
    "amplitude 1e6, noise 1e-8": prior(("amplitude", log(1e6)), ("noise", log(1e-8))),
    "amplitude 1e6, noise 1e-8, rank one": lambda p: mixing(rank_one)(CASES["amplitude 1e6, noise 1e-8"](p)),
    "amplitude 1e6, noise 1e-8, near-duplicates": lambda p: CASES["near-duplicates"](
        CASES["amplitude 1e6, noise 1e-8"](p)
    ),
    "amplitude 1e6, noise 1e-8, length-scale 1e4": prior(("amplitude", log(1e6)), ("noise", log(1e-8)), log_phi1(1e4)),
}
# Where h K reaches 1e14 the last digits of the covariance decide: these may end in an error instead.
MAY_BREAK = {name for name in CASES if "noise 1e-8, " in name}


# ---- what must come of it ------------------------------------------------------------------------------------


def assert_finite_everywhere(problem: Problem, *, max_steps: int = 40) -> None:
    model = problem.model()
    posterior = infer(model, max_steps=max_steps)
    assert np.isfinite(posterior.bounds).all()
    assert torch.isfinite(posterior.q.m).all()
    assert torch.isfinite(posterior.q.v).all()
    assert (posterior.q.v >= 0.0).all()

    bound = model.bound(posterior.q)
    parameters = problem.prior.parameters
    if len(model.rows):
        for gradient in torch.autograd.grad(bound, list(parameters.values()), allow_unused=True):
            assert gradient is None or torch.isfinite(gradient).all()

    new = torch.cat([problem.x, problem.x + 0.5, normal(np.random.default_rng(0), 3, problem.x.shape[1])])
    latents = predict_latents(model, posterior.q, new)
    assert latents.mean.shape == (len(new), problem.prior.n_latents)
    assert torch.isfinite(latents.mean).all()
    assert torch.isfinite(latents.cov).all()
    prior = [problem.prior.latent_variance(b, problem.prior.eta(new)) for b in range(problem.prior.n_latents)]
    unseen = torch.diag_embed(torch.stack(prior, -1).detach())
    for task, likelihood in problem.likelihoods.items():
        W = problem.prior.W_of(task).detach()
        mean, cov = latents.outputs(W)
        before = (W @ unseen @ W.mT).diagonal(dim1=-2, dim2=-1)
        variance = cov.diagonal(dim1=-2, dim2=-1)
        assert (variance >= -1e-6 * before).all(), task
        assert (variance <= (1.0 + 1e-6) * before).all(), task
        said = likelihood.readout(mean, cov, problem.prior.noise_of(task))
        for value in said.values():
            assert torch.isfinite(value).all(), task
        if "proba" in said:
            assert said["proba"].min() >= 0.0
            assert said["proba"].max() <= 1.0 + 1e-9
            if likelihood.n_outputs > 1:
                torch.testing.assert_close(said["proba"].sum(-1), torch.ones(len(new), dtype=torch.float64))


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in MAY_BREAK])
def test_hard_data_end_in_finite_numbers(name, bound):
    assert_finite_everywhere(CASES[name](mixed(bound)))


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("name", sorted(MAY_BREAK))
def test_the_hardest_data_end_in_finite_numbers_or_a_remedy(name, bound):
    problem = CASES[name](mixed(bound))
    error = None
    try:
        assert_finite_everywhere(problem)
    except NumericalError as caught:
        error = caught
    if error is not None:
        assert error.where in {f"task {task!r}" for task in problem.likelihoods}
        assert error.remedy.startswith("raise the noise")


@pytest.mark.parametrize("make", [OneVsEach, LogisticSoftmax])
def test_ten_classes_with_two_latents(make):
    few = build(["one-vs-each"], seed=2, sizes=12, classes=10)
    likelihoods = {"one-vs-each.0": make(10)}
    at, _ = few.observations["one-vs-each.0"]
    y = labels(likelihoods["one-vs-each.0"], len(at), np.random.default_rng(3))
    problem = replace(few, likelihoods=likelihoods, observations={"one-vs-each.0": (at, y)})
    assert_finite_everywhere(problem)


def test_more_outputs_than_latents():
    assert_finite_everywhere(mixed(kernels=["rbf"]))


@pytest.mark.parametrize("kernel", ["rbf", "laplace", "cauchy", "matern32", "matern52", "linear", "affine"])
@pytest.mark.parametrize("name", ["all inputs identical", "all inputs zero", "near-duplicates"])
def test_coincident_inputs_under_every_kernel(name, kernel):
    assert_finite_everywhere(CASES[name](mixed(kernels=[kernel, kernel])))
