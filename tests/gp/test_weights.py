"""Weights of labels: one that counts w times is the same label w times, whatever its likelihood, model and path."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyfed.gp import ExactModel, Rows, SparseModel, predict_latents
from polyfed.gp.batch import ClientBatch
from polyfed.gp.compiled import SWITCH
from polyfed.gp.stochastic import StochasticState, natural_step, start
from problems import KINDS, build, normal, of_client, run

GROUPS = ("kernels", "mixing", "noise")


def weighted_and_repeated(*, seed=0, bound="polya-gamma", powers=1.0):
    """Rows whose labels count 1, 2 or 3 times, and the same labels as often."""
    problem, draw = build(KINDS, seed=seed, bound=bound, powers=powers), torch.Generator().manual_seed(seed)
    weights, repeated = {}, {}
    for task, (at, y) in problem.observations.items():
        times = torch.randint(1, 4, (len(at),), generator=draw)
        weights[task] = times.double()
        repeated[task] = (at.repeat_interleave(times), y.repeat_interleave(times, 0))
    rows = Rows.of(problem.x, problem.observations, problem.likelihoods, weights)
    return problem, rows, problem.seeing(repeated).rows()


def outcome(model, x):
    """Bound, gradient, pooled noise, and predictions, after as many plain steps."""
    posterior = run(model)
    wanted = model.prior.group(*GROUPS)
    grads = torch.autograd.grad(model.bound(posterior.q), list(wanted.values()), allow_unused=True)
    noise = model.rows.noise_statistics(model.prior, posterior.q.m, posterior.q.v)
    latents = predict_latents(model, posterior.q, x)
    return [
        torch.tensor(posterior.bound),
        *(torch.zeros(()) if grad is None else grad for grad in grads),
        *(torch.stack(pair) for pair in noise.values()),
        latents.mean,
        latents.cov,
    ]


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("model", [ExactModel, lambda prior, rows: SparseModel(prior, rows, rows.x[:4])])
def test_a_weight_is_a_repetition(model, bound):
    problem, weighted, repeated = weighted_and_repeated(bound=bound, powers=0.7)
    new = normal(np.random.default_rng(1), 3, 2)
    found, expected = (outcome(model(problem.prior, rows), new) for rows in (weighted, repeated))
    assert len(found) == len(expected) > 5
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_batch_of_clients_knows_who_is_weighted(monkeypatch, switch):
    monkeypatch.setenv(SWITCH, switch)
    problem, weighted, repeated = weighted_and_repeated(seed=3)
    plain = problem.rows()
    options = {"groups": GROUPS, "tolerance": 0.0, "max_steps": 300}
    together = ClientBatch([plain, weighted]).step(problem.prior, **options)
    for i, rows in enumerate([plain, repeated]):
        alone = of_client(ClientBatch([rows]).step(problem.prior, **options), 0)
        assert of_client(together, i).bound == pytest.approx(alone.bound, abs=1e-9)
        for name, gradient in alone.gradient.items():
            torch.testing.assert_close(of_client(together, i).gradient[name], gradient, rtol=1e-6, atol=1e-6)
        assert of_client(together, i).noise == {
            task: (pytest.approx(total, abs=1e-6), count) for task, (total, count) in alone.noise.items()
        }


def test_a_minibatch_brings_its_weights():
    problem, weighted, repeated = weighted_and_repeated(seed=5)
    found: list[StochasticState] = []
    for rows in (weighted, repeated):
        model = SparseModel(problem.prior, rows, problem.x[:4])
        everything = [torch.arange(len(block.y)) for block in rows.blocks]
        found.append(natural_step(model, start(model), everything, rho=1.0))
    torch.testing.assert_close(found[0].Lambda, found[1].Lambda, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[0].eta, found[1].eta, rtol=1e-9, atol=1e-9)
