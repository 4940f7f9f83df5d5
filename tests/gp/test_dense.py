"""Eliminating the rows whose sites never change leaves every number as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given

from polyfed.gp import ExactModel
from polyfed.gp.schur import PartialPosterior
from problems import KINDS, build, law, problems, run


def both(problem):
    """The model with its Gaussian rows eliminated, and the same without."""
    rows = problem.rows()
    return ExactModel(problem.prior, rows), ExactModel(problem.prior, replace(rows, n_fixed=0))


def assert_same_posterior(with_, without, tolerance=1e-9):
    assert with_.bounds == pytest.approx(without.bounds, abs=tolerance)
    for name in ("h", "r", "alpha", "m", "v", "L", "B_inv", "logz"):
        torch.testing.assert_close(getattr(with_.q, name), getattr(without.q, name), rtol=tolerance, atol=tolerance)


@given(problem=problems(min_tasks=2))
@law(40)
def test_the_posterior_is_the_same(problem):
    eliminated, whole = both(problem)
    assert_same_posterior(run(eliminated, steps=4), run(whole, steps=4))


def test_gaussian_rows_come_first_whatever_the_order_of_the_tasks():
    rows = build(("bernoulli", "gaussian", "student-t", "gaussian"), seed=0, sizes=[2, 3, 4, 5]).rows()
    assert rows.n_fixed == 8
    assert [block.task for block in rows.blocks] == ["gaussian.1", "gaussian.3", "bernoulli.0", "student-t.2"]
    assert build(("bernoulli", "student-t"), seed=0).rows().n_fixed == 0


def test_a_step_is_a_sketch_and_the_result_is_whole():
    model, _ = both(build(KINDS, seed=0))
    partial_posterior = model.step(*model.rows.sites(model.prior, *model.prior_marginals()))
    assert isinstance(partial_posterior, PartialPosterior)
    assert (partial_posterior.v[: model.rows.n_fixed] == 0).all()
    whole = model.bound(model.complete(partial_posterior))
    assert whole.item() == pytest.approx(model.bound(partial_posterior).item(), abs=1e-9)


def test_new_sites_of_the_eliminated_rows_are_noticed():
    problem = build(("gaussian", "bernoulli"), seed=1)
    model, _ = both(problem)
    run(model)
    problem.prior.load({"noise.gaussian.0": problem.prior.state()["noise.gaussian.0"] + 1.0})  # K stays, sites do not
    _, fresh = both(problem)
    assert_same_posterior(run(model), run(fresh))
