"""The gradient of the bound with fixed sites is the whole gradient: that of the bound inferred anew.

Every number of Θ is moved by a little and inference is run to its end again; fourth-order differences of those bounds
must agree with autograd to 1e-6.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from polyfed.gp import infer
from polyfed.gp.kernels import KERNELS
from problems import KINDS, LOGISTIC, Problem, build, law, run

STEP = 5e-4


def differences(problem: Problem, parameter: Tensor, start: tuple[Tensor, Tensor]) -> Tensor:
    """∂bound/∂parameter, number by number, each with its own inference."""
    numbers = parameter.detach().view(-1)
    slopes = torch.empty_like(numbers)
    for i in range(len(numbers)):
        value, bound = numbers[i].item(), {}
        for k in (-2, -1, 1, 2):
            numbers[i] = value + k * STEP
            bound[k] = infer(problem.model(), start=start, tolerance=1e-13, max_steps=300).bound
        numbers[i] = value
        slopes[i] = (8.0 * (bound[1] - bound[-1]) - (bound[2] - bound[-2])) / (12.0 * STEP)
    return slopes.view_as(parameter)


def assert_gradient(problem: Problem) -> None:
    model = problem.model()
    posterior = run(model, steps=100)
    parameters = problem.prior.parameters
    gradients = torch.autograd.grad(model.bound(posterior.q), list(parameters.values()))
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        expected = differences(problem, parameter, posterior.marginals)
        error = ((gradient - expected).abs() / gradient.abs().clamp_min(1.0)).max().item()
        assert error <= 1e-6, f"{name}: {gradient} is not {expected}"


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh()).double()


CASES = [(kind, "polya-gamma") for kind in KINDS] + [(kind, "gaussian") for kind in LOGISTIC]
PAIRS = [("rbf", "laplace"), ("cauchy", "matern32"), ("matern52", "linear"), ("rbf", "affine")]


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(case) for case in CASES])
def test_every_parameter_of_one_task_with_a_network(case):
    kind, bound = CASES[case]
    problem = build(
        [kind],
        seed=case,
        sizes=4,
        kernels=PAIRS[case % 3],
        bound=bound,
        per_dimension=case % 2 == 1,
        features=network(case),
        features_dims=2,
    )
    assert {name.split(".")[0] for name in problem.prior.parameters} >= {"features", "kernels", "mixing"}
    assert_gradient(problem)


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=3),
    kernels=st.lists(st.sampled_from(sorted(KERNELS)), min_size=1, max_size=2),
    power=st.sampled_from([0.5, 1.0, 2.0]),
    seed=st.integers(0, 2**16),
)
@law(5)
def test_every_parameter_of_a_mixture(bound, kinds, kernels, power, seed):
    assert_gradient(build(kinds, seed=seed, sizes=3, kernels=kernels, dims=1, bound=bound, powers=power))
