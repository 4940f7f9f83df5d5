"""The bound: no step lowers it, and where inference ends does not depend on where it began."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.gp import ExactModel, infer
from problems import KINDS, LOG_CONCAVE, LOGISTIC, Problem, build, law, normal, problems, run

BOUNDS = ["polya-gamma", "gaussian"]
POWERS = (1.0, 0.5, 2.0 / 3.0, 3.0)
SCALES = (1.0, 5.0, 20.0)  # large mixing weights: classes well apart, where steps overshoot


def unguarded(model: ExactModel, *, steps: int) -> list[float]:
    """Plain coordinate ascent: `infer` halves a step that falls, and so would hide a wrong site."""
    m, v = model.prior_marginals()
    bounds = []
    for _ in range(steps):
        q = model.solve(*model.rows.sites(model.prior, m, v))
        bounds.append(model.bound(q).item())
        m, v = q.m, q.v
    return bounds


def assert_rising(bounds) -> None:
    assert np.diff(bounds).min(initial=0.0) >= -1e-9


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@law(10)
def test_no_plain_step_lowers_the_bound_of_one_kind(kind, data):
    problem = data.draw(problems(kinds=[kind], powers=POWERS, scales=SCALES))
    assert_rising(unguarded(problem.model(), steps=15))


@given(problem=problems(powers=POWERS, scales=SCALES))
@law(40)
def test_no_plain_step_lowers_the_bound_of_a_mixture(problem):
    assert_rising(unguarded(problem.model(), steps=15))


@pytest.mark.parametrize("kind", [*LOGISTIC, "mixture"])
@given(data=st.data())
@law(10)
def test_no_halved_step_lowers_the_gaussian_bound(kind, data):
    kinds = KINDS if kind == "mixture" else [kind]
    problem = data.draw(problems(kinds=kinds, bound="gaussian", powers=POWERS, scales=SCALES))
    assert_rising(run(problem.model(), steps=15).bounds)


@pytest.mark.parametrize("bound", BOUNDS)
@given(data=st.data())
@law(20)
def test_no_extrapolated_step_lowers_the_bound(bound, data):
    model = data.draw(problems(bound=bound, powers=POWERS, scales=SCALES)).model()
    assert_rising(run(model, steps=15, accelerate=True).bounds)


@pytest.mark.parametrize("bound", BOUNDS)
@given(data=st.data())
@law(20)
def test_extrapolation_arrives_where_plain_steps_do(bound, data):
    model = data.draw(problems(kinds=LOG_CONCAVE, bound=bound)).model()
    plain = infer(model, tolerance=1e-10, max_steps=1000, accelerate=False)
    fast = infer(model, tolerance=1e-10, max_steps=1000)
    assert fast.bound == pytest.approx(plain.bound, abs=1e-6)
    assert fast.converged


@pytest.mark.parametrize("bound", BOUNDS)
@given(data=st.data())
@law(15)
def test_inference_ends_where_its_sites_repeat_themselves(bound, data):
    problem = data.draw(problems(bound=bound))
    model = problem.model()
    q = infer(model, tolerance=1e-13, max_steps=500).q
    h, r = model.rows.sites(problem.prior, q.m, q.v)
    torch.testing.assert_close(q.h, h, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(q.r, r, rtol=1e-5, atol=1e-5)


@given(problem=problems(kinds=LOGISTIC))
@law(15)
def test_the_gaussian_bound_is_the_tighter_one(problem):
    loose = run(problem.model(), steps=20).bound
    for likelihood in problem.likelihoods.values():
        likelihood.bound = "gaussian"
    assert run(problem.model(), steps=20).bound >= loose - 1e-9


# ---- where it starts and when it stops -----------------------------------------------------------------------


@pytest.mark.parametrize("bound", BOUNDS)
@given(data=st.data())
@law(15)
def test_a_warm_start_has_arrived(bound, data):
    model = data.draw(problems(bound=bound)).model()
    first = infer(model, tolerance=1e-13, max_steps=500)
    again = infer(model, start=first.marginals)
    assert again.converged
    assert len(again.bounds) <= 2
    assert again.bound == pytest.approx(first.bound, abs=1e-9)


def wild(problem: Problem, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    n = len(problem.rows())
    return 20.0 * normal(rng, n), (3.0 * normal(rng, n)).exp()


@pytest.mark.parametrize("bound", BOUNDS)
@given(data=st.data(), seed=st.integers(0, 1000))
@law(15)
def test_a_wild_start_ends_at_the_same_bound(bound, data, seed):
    # Not for robust regression and the logistic-softmax: those are not log-concave and may have several optima.
    problem = data.draw(problems(kinds=LOG_CONCAVE, bound=bound))
    model = problem.model()
    usual = infer(model, tolerance=1e-11, max_steps=1000)
    astray = infer(model, start=wild(problem, seed), tolerance=1e-11, max_steps=1000)
    assert astray.bound == pytest.approx(usual.bound, abs=1e-6)


@given(problem=problems(), seed=st.integers(0, 1000))
@law(15)
def test_a_wild_start_of_any_kind_ends_in_a_bound_that_rose(problem, seed):
    assert_rising(run(problem.model(), start=wild(problem, seed), steps=25, accelerate=True).bounds)


def test_an_extrapolation_that_lowers_the_bound_by_little_is_dropped_too():
    # What is rounding in a plain step, 1e-10 of the bound, is a fall in an extrapolation.
    kinds, sizes = ["logistic-softmax", "student-t", "negative-binomial"], [1, 8, 5]
    problem = build(kinds, seed=238, sizes=sizes, kernels=["matern32", "matern32"])
    problem.prior.load({name: 20.0 * W.detach() for name, W in problem.prior.group("mixing").items()})
    assert_rising(run(problem.model(), steps=15, accelerate=True).bounds)
