"""Learning Θ: a stationary point of the bound, and a way out where L-BFGS has none."""

import numpy as np
import pytest
import torch

from polyfed.errors import ConfigError, NumericalError
from polyfed.gp import GROUPS, ExactModel, Prior, infer
from polyfed.modelling import learning
from polyfed.modelling.learning import initialise, maximise_bound
from polyfed.modelling.threads import threads_for
from problems import build

MIXED = ("gaussian", "bernoulli", "negative-binomial")


def gradient(prior, rows):
    model = ExactModel(prior, rows)
    bound = model.bound(infer(model, tolerance=1e-12, max_steps=500).q)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(bound, list(prior.parameters.values()))])


def test_it_ends_where_the_gradient_vanishes_or_at_a_limit():
    problem = build(MIXED, seed=3, sizes=8)
    rows = problem.rows()
    before = gradient(problem.prior, rows).abs().max()
    report = maximise_bound(problem.prior, problem.model, groups=GROUPS, max_iterations=300)
    limits = learning._Objective(problem.prior, problem.model, GROUPS).limits()
    flat = torch.cat([p.detach().reshape(-1) for p in problem.prior.parameters.values()])
    inside = torch.tensor([low + 1e-6 < x < high - 1e-6 for x, (low, high) in zip(flat.tolist(), limits, strict=True)])
    after = gradient(problem.prior, rows).abs()[inside].max()
    assert report.bound > report.first_bound
    assert after < 0.02 * before


def test_adamw_takes_over_when_the_line_search_fails(monkeypatch):
    class Broken:
        status, nit = 2, 0

    monkeypatch.setattr("scipy.optimize.minimize", lambda *a, **k: Broken())
    problem = build(MIXED, seed=1)
    report = maximise_bound(problem.prior, problem.model, groups=GROUPS, max_iterations=20)
    assert report.optimiser == "AdamW"
    assert report.bound > report.first_bound
    value = infer(problem.model(), tolerance=1e-9, max_steps=500).bound
    assert value == pytest.approx(report.bound, abs=1e-4)  # the best Θ was put back


def test_a_broken_trial_is_stepped_back_from(monkeypatch):
    problem = build(MIXED, seed=2)
    calls = 0

    def sometimes(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 2:  # the first trial of the line search
            raise NumericalError("broken")
        return infer(*args, **kwargs)

    monkeypatch.setattr(learning, "infer", sometimes)
    report = maximise_bound(problem.prior, problem.model, groups=GROUPS, max_iterations=20)
    assert calls > 3
    assert report.bound > report.first_bound


def test_if_nothing_is_finite_it_says_so(monkeypatch):
    def broken(*args, **kwargs):
        raise NumericalError("broken")

    monkeypatch.setattr(learning, "infer", broken)
    problem = build(("gaussian",), seed=0)
    with pytest.raises(NumericalError, match="not finite at any value tried; scale the features"):
        maximise_bound(problem.prior, problem.model, groups=GROUPS, max_iterations=3)


def test_nothing_to_learn_is_an_error():
    problem = build(("bernoulli",), seed=0)
    with pytest.raises(ConfigError, match="nothing to learn in groups"):
        maximise_bound(problem.prior, problem.model, groups=["noise"], max_iterations=3)


def test_initial_length_scales_are_the_median_distance():
    rows = build(("gaussian",), seed=0, sizes=40, dims=3).rows()
    prior = initialise(Prior(kernels=["rbf", "laplace", "rbf"], dims=3, outputs={"y": 1}), rows, seed=0)
    x = rows.x.numpy()
    gaps = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    median = np.median(gaps[gaps > 0])
    scales = [scale.item() for ((_, scale),) in prior.length_scales()]
    np.testing.assert_allclose(scales, [median, median / 2, median * 2], rtol=0.05)
    same = torch.zeros_like(rows.x)
    prior = initialise(
        Prior(kernels=["rbf"], dims=3, outputs={"y": 1}), type(rows)(same, rows.at, rows.A, rows.blocks), 0
    )
    assert prior.length_scales()[0][0][1].item() == pytest.approx(1.0)


def test_small_problems_use_one_thread_and_put_the_setting_back():
    before = torch.get_num_threads()
    with threads_for(10):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), threads_for(10):
        raise RuntimeError
    assert torch.get_num_threads() == before
    with threads_for(10**6):
        assert torch.get_num_threads() == before
