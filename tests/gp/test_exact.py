"""The bound against the evidence with 50 digits, and whom a broken covariance is blamed on."""

from __future__ import annotations

from math import log

import mpmath
import pytest
import torch

from polyfed.gp import ExactModel, infer
from polyfed.gp.linalg import NotPositiveDefinite
from problems import Problem, build, run

REMEDY = "raise the noise, or lower the amplitude or the mixing weights of this task"


def gaussian_evidence(problem: Problem, model: ExactModel) -> float:
    """log N(y | 0, K + σ²I), for regression tasks alone."""
    noise = {task: problem.prior.noise_of(task).item() for task in problem.likelihoods}
    with mpmath.workdps(50):
        C = mpmath.matrix(model.K.tolist())
        y = mpmath.matrix([v for block in model.rows.blocks for v in block.y.tolist()])
        for block in model.rows.blocks:
            for row in block.rows.flatten().tolist():
                C[row, row] += noise[block.task]
        quadratic = (y.T * mpmath.lu_solve(C, y))[0]
        return float(-(quadratic + mpmath.log(mpmath.det(C)) + len(y) * mpmath.log(2 * mpmath.pi)) / 2)


@pytest.mark.parametrize("amplitude", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("noise", [1e-8, 1e-6, 1e-4, 1.0, 1e6])
def test_the_bound_of_regression_is_the_evidence(noise, amplitude):
    problem = build(["gaussian", "gaussian"], seed=3, sizes=6, kernels=["matern32", "laplace"])
    state = problem.prior.state()
    problem.prior.load(
        {name: torch.full_like(value, log(noise)) for name, value in state.items() if "noise" in name}
        | {name: torch.full_like(value, log(amplitude)) for name, value in state.items() if "amplitude" in name}
    )
    model = problem.model()
    assert infer(model).bound == pytest.approx(gaussian_evidence(problem, model), rel=1e-9, abs=1e-9)


def test_the_gradient_serves_twice():
    problem = build(["gaussian", "bernoulli"], seed=0)
    model = problem.model()
    q = run(model).q
    parameters = list(problem.prior.parameters.values())
    first = torch.autograd.grad(model.bound(q), parameters, retain_graph=True)
    second = torch.autograd.grad(model.bound(q), parameters)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=0.0)


def test_without_rows_the_bound_is_zero_and_has_no_gradient():
    problem = build(["gaussian"], seed=0).seeing({})
    model = problem.model()
    posterior = infer(model)
    assert posterior.converged
    assert posterior.bound == 0.0
    gradients = torch.autograd.grad(
        model.bound(posterior.q), list(problem.prior.parameters.values()), allow_unused=True
    )
    assert all(g is None or bool((g == 0.0).all()) for g in gradients)


# ---- blame ---------------------------------------------------------------------------------------------------


def broken(name: str, value: float = float("nan")) -> Problem:
    """As after a step of an optimiser that went wrong; `Prior.load` would reject the value."""
    problem = build(["gaussian", "student-t", "bernoulli"], seed=0)
    with torch.no_grad():
        problem.prior.parameters[name].fill_(value)
    return problem


@pytest.mark.parametrize(
    ("parameter", "task"),
    [
        ("noise.student-t.1", "student-t.1"),
        ("mixing.student-t.1", "student-t.1"),
        ("mixing.bernoulli.2", "bernoulli.2"),
        ("kernels.0.log_amplitude", "gaussian.0"),  # of all tasks: the first
        ("kernels.1.log_phi1", "gaussian.0"),
    ],
)
def test_a_parameter_that_is_not_a_number_is_blamed_on_its_task(parameter, task):
    with pytest.raises(NotPositiveDefinite) as caught:
        infer(broken(parameter).model())
    assert task in str(caught.value)
    assert caught.value.remedy


def test_an_amplitude_beyond_the_floats_is_an_error_too():
    with pytest.raises(NotPositiveDefinite, match=r"^task 'gaussian\.0': .*; raise the noise, or lower the amplitude"):
        infer(broken("kernels.0.log_amplitude", 800.0).model())


def test_an_indefinite_covariance_is_blamed_on_the_row_where_it_breaks():
    model = build(["gaussian", "student-t"], seed=0).model()
    row = int(model.rows.blocks[1].rows[2, 0])
    with torch.no_grad():
        model.K[row, row] = -1e6
    with pytest.raises(NotPositiveDefinite) as caught:
        infer(model)
    assert caught.value.row == row
    assert str(caught.value) == f"task 'student-t.1': the covariance is not positive definite at row {row}; {REMEDY}."
