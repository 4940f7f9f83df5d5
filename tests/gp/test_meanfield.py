"""When inference stops, and what it says of that."""

from __future__ import annotations

import itertools
from math import log

import pytest
import torch

from polyfed.gp import infer
from problems import KINDS, build


@pytest.mark.parametrize("max_steps", [1, 2, 7])
@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
def test_no_more_posteriors_than_max_steps(bound, max_steps):
    posterior = infer(build(KINDS, seed=0, bound=bound).model(), tolerance=1e-12, max_steps=max_steps)
    assert len(posterior.bounds) == max_steps
    assert not posterior.converged
    assert posterior.bound == posterior.bounds[-1]


def test_regression_alone_is_one_step():
    posterior = infer(build(["gaussian", "gaussian"], seed=0).model(), tolerance=0.0)
    assert len(posterior.bounds) == 1
    assert posterior.converged


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-10])
def test_the_last_step_gained_less_than_the_tolerance(tolerance, accelerate):
    model = build(KINDS, seed=0).model()
    posterior = infer(model, tolerance=tolerance, max_steps=500, accelerate=accelerate)
    gains = [b - a for a, b in itertools.pairwise(posterior.bounds)]
    assert posterior.converged
    assert gains[-1] < tolerance
    if not accelerate:  # an extrapolation may gain little by bad luck, and is no reason to stop
        assert min(gains[:-1]) >= tolerance


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
def test_tolerance_zero_goes_on_until_nothing_moves(bound):
    model = build(KINDS, seed=0, bound=bound).model()
    q = infer(model, tolerance=0.0, max_steps=500).q
    h, r = model.rows.sites(model.prior, q.m, q.v)
    assert h.tolist() == pytest.approx(q.h.tolist(), rel=1e-6)
    assert r.tolist() == pytest.approx(q.r.tolist(), rel=1e-6, abs=1e-6)


def test_extrapolation_saves_steps_where_classes_are_well_separated():
    problem = build(["bernoulli", "one-vs-each"], seed=0, sizes=8)
    problem.prior.load({name: 30.0 * W.detach() for name, W in problem.prior.group("mixing").items()})
    plain, fast = (infer(problem.model(), max_steps=2000, accelerate=which) for which in (False, True))
    assert len(fast.bounds) < len(plain.bounds) / 2
    assert fast.bound == pytest.approx(plain.bound, abs=1e-4)


def test_the_start_is_not_changed():
    model = build(["bernoulli", "student-t"], seed=0).model()
    m, v = model.prior_marginals()
    start = (m.clone(), v.clone())
    infer(model, start=start)
    assert start[0].equal(m)
    assert start[1].equal(v)
    assert v.equal(model.K.detach().diagonal())


def test_a_noise_far_below_the_amplitude_does_not_stall_inference():
    # If the bound carries more rounding than a step gains, every step looks like a fall and inference gives up.
    problem = build(["gaussian", "bernoulli", "one-vs-each"], seed=1, sizes=15)
    problem.prior.load(
        {name: torch.full_like(p.detach(), log(1e6)) for name, p in problem.prior.parameters.items() if "amp" in name}
        | {"noise.gaussian.0": torch.tensor(log(1e-8))}
    )
    model = problem.model()
    posterior = infer(model, max_steps=400)
    assert posterior.converged
    h, _ = model.rows.sites(problem.prior, *posterior.marginals)
    assert h.tolist() == pytest.approx(posterior.q.h.tolist(), rel=1e-2)
