"""Minibatches: one batch of all data is a step of inference, many come close to its end, and any run can be resumed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyfed.errors import ConfigError
from polyfed.gp import infer
from polyfed.gp.latent_sparse import SparseModel
from polyfed.gp.sparse import InducingModel, PaperSparseModel
from polyfed.gp.stochastic import (
    StochasticOptions,
    StochasticState,
    as_gaussian,
    batches_of,
    natural_step,
    start,
    take,
    train,
)
from problems import KINDS, Problem, build, run

MIXED = list(KINDS)


def sparse_model(problem: Problem, M: int = 6, model_class: type[InducingModel] = SparseModel) -> InducingModel:
    return model_class(problem.prior, problem.rows(), problem.x[:M])


def everything(model: InducingModel) -> list[Tensor]:
    return [torch.arange(len(block.y)) for block in model.rows.blocks]


# ---- one batch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", [SparseModel, PaperSparseModel])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_full_steps_on_all_data_are_inference(steps, model_class):
    model = sparse_model(build(MIXED, seed=0), model_class=model_class)
    expected = run(model, steps=steps)
    options = StochasticOptions(batch_size=10**6, decay=0.0)  # more than there are data
    state = train(model, start(model), options, steps=steps)
    q = expected.q
    torch.testing.assert_close(state.Lambda, q.L @ q.L.mT, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.linalg.solve(state.Lambda, state.eta), q.beta, rtol=1e-8, atol=1e-10)
    further = as_gaussian(model, state)  # one more step
    torch.testing.assert_close(further.m, run(model, steps=steps + 1).q.m, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(further.v, run(model, steps=steps + 1).q.v, rtol=1e-10, atol=1e-10)


def test_minibatches_add_up_to_all_data_whatever_the_sizes_of_tasks():
    """From one state, the estimates of an epoch's minibatches average to the estimate of all data."""
    model = sparse_model(build(MIXED, seed=1, sizes=12))
    state = train(model, start(model), StochasticOptions(batch_size=10**6, decay=0.0), steps=2)
    whole = natural_step(model, state, everything(model), 1.0)
    quarters = [natural_step(model, state, [all_[k::4] for all_ in everything(model)], 1.0) for k in range(4)]
    torch.testing.assert_close(torch.stack([q.Lambda for q in quarters]).mean(0), whole.Lambda)
    torch.testing.assert_close(torch.stack([q.eta for q in quarters]).mean(0), whole.eta)


def test_a_task_of_few_data_is_neither_lost_nor_counted_twice():
    model = sparse_model(build(["gaussian", "bernoulli"], seed=2, sizes=[2, 60]))
    state = start(model)
    expected = natural_step(model, state, everything(model), 1.0).eta
    options = [StochasticOptions(batch_size=6, seed=seed, decay=0.0) for seed in range(400)]
    estimates = torch.stack([train(model, state, each, steps=1).eta for each in options])
    error = (estimates.mean(0) - expected) / (estimates.std(0) / len(options) ** 0.5)
    assert error.abs().max() < 4.0  # standard errors


# ---- many batches ---------------------------------------------------------------------------------------------


def bound_of(model: InducingModel, state: StochasticState) -> float:
    """The ELBO of q(w) as it is, without the full pass of `as_gaussian`."""
    with torch.no_grad():
        cov = torch.linalg.inv(state.Lambda)
        mean = cov @ state.eta
        Phi, d = model.design_matrix(slice(None))
        local = model.rows.local_bound(model.prior, Phi @ mean, (Phi @ cov * Phi).sum(1) + d)
        kl = 0.5 * (cov.trace() + mean @ mean - model.size + state.Lambda.logdet())
        return (local - kl).item()


@pytest.mark.parametrize("kinds", [["gaussian", "bernoulli"], ["student-t", "one-vs-each", "negative-binomial"], MIXED])
def test_minibatches_come_close_to_the_end_of_inference(kinds):
    model = sparse_model(build(kinds, seed=3, sizes=60), M=8)
    best = infer(model, tolerance=1e-9).bound
    options = StochasticOptions(batch_size=5 * len(kinds))  # twelve batches in an epoch
    state = start(model)
    misses = []
    for _ in range(3):
        state = train(model, state, options, steps=120)
        misses.append(best - bound_of(model, state))
    assert min(misses) > -1e-6
    assert max(misses) < 0.02  # nats, after ten epochs; 0.0034 was measured
    assert misses[-1] < 0.003
    q = as_gaussian(model, state)
    assert misses[-1] >= best - model.bound(q).item() - 1e-9  # the full pass is a step up


# ---- the state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [0, 1, 7, 12, 20])
def test_a_resumed_run_is_the_same_to_the_bit(stop):
    model = sparse_model(build(MIXED, seed=4))
    options = StochasticOptions(batch_size=6, seed=5)
    assert batches_of(model.rows, 6) == 6
    through = train(model, start(model), options, steps=20)
    before = train(model, start(model), options, steps=stop)
    saved = StochasticState(before.Lambda.clone(), before.eta.clone(), before.step)
    torch.manual_seed(stop)  # the global generator has no say
    resumed = train(sparse_model(build(MIXED, seed=4)), saved, options, steps=20 - stop)
    assert resumed.step == through.step == 20
    assert torch.equal(resumed.Lambda, through.Lambda)
    assert torch.equal(resumed.eta, through.eta)


def test_the_order_depends_on_seed_and_epoch():
    model = sparse_model(build(["gaussian"], seed=5, sizes=20))
    ends = [train(model, start(model), StochasticOptions(batch_size=5, seed=seed), steps=1).eta for seed in (0, 1)]
    assert not torch.equal(*ends)
    full = StochasticOptions(batch_size=5, decay=0.0)  # after a full step nothing is left of the past
    epochs = [train(model, StochasticState(*_prior(model), step), full, steps=1).eta for step in (0, 4)]
    assert not torch.equal(*epochs)


def _prior(model: InducingModel) -> tuple[Tensor, Tensor]:
    return start(model).Lambda, start(model).eta


# ---- odd data and options -------------------------------------------------------------------------------------


def test_a_task_without_labels():
    problem = build(["gaussian", "bernoulli", "one-vs-each"], seed=6)
    some = problem.seeing({task: seen for task, seen in problem.observations.items() if task != "bernoulli.1"})
    model = sparse_model(some)
    state = train(model, start(model), StochasticOptions(batch_size=3), steps=12)
    assert bool(torch.isfinite(as_gaussian(model, state).m).all())


def test_no_data_leave_the_prior():
    model = sparse_model(build(["gaussian"], seed=7).seeing({}))
    state = train(model, start(model), StochasticOptions(), steps=3)
    assert torch.equal(state.Lambda, torch.eye(model.size, dtype=torch.float64))
    assert model.bound(as_gaussian(model, state)).item() == 0.0


def test_taken_rows_are_those_of_the_data():
    rows = build(["gaussian", "one-vs-each", "binomial"], seed=8).rows()
    positions, some = take(rows, [torch.tensor([3]), torch.tensor([4, 0]), torch.zeros(0, dtype=torch.int64)])
    assert positions.tolist() == [3, 13, 14, 5, 6]
    assert [block.task for block in some.blocks] == ["gaussian.0", "one-vs-each.1"]
    assert some.blocks[1].rows.tolist() == [[1, 2], [3, 4]]
    assert torch.equal(some.A, rows.A[positions])
    assert torch.equal(some.at, rows.at[positions])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size 0 is too small; use at least one datum."),
        ({"decay": -0.1}, "decay -0.1 is not between 0 and 1; use 0.9, or 0 for full steps."),
        ({"decay": float("nan")}, "decay nan is not between 0 and 1; use 0.9, or 0 for full steps."),
        ({"delay": 0.5}, "delay 0.5 is not a number from one on; use 1, or more for shorter steps."),
        ({"delay": float("inf")}, "delay inf is not a number from one on; use 1, or more for shorter steps."),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(ConfigError) as caught:
        StochasticOptions(**options)
    assert str(caught.value) == text


def test_a_negative_number_of_steps():
    model = sparse_model(build(["gaussian"], seed=0))
    with pytest.raises(ConfigError) as caught:
        train(model, start(model), StochasticOptions(), steps=-1)
    assert str(caught.value) == "-1 steps; use zero or more."


def test_steps_get_shorter():
    assert StochasticOptions(decay=0.5, delay=4.0).rho(0) == 0.5
    assert StochasticOptions(decay=0.5, delay=4.0).rho(12) == 0.25
    assert StochasticOptions().rho(0) == 1.0
