"""Shapes in types are checked while tests run, and hold: a call with a wrong one is rejected by name."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from polyfed.gp.kernels import rbf
from polyfed.gp.knowledge import Evidence
from polyfed.gp.likelihoods import Gaussian
from polyfed.gp.linalg import log_z, solve
from shape_checks import GP, checker, once_for_each_shape

one = torch.ones(3, dtype=torch.float64)
eye = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: solve(eye, one, one[:2]),
        lambda: solve(eye[:2], one, one),
        lambda: log_z(eye, one[None], one),
        lambda: solve(eye.to(torch.int64), one, one),
        lambda: rbf(eye, eye[:, :2], {"phi1": one[:1]}),
        lambda: Gaussian().local_bound(one, one, one, one[0]),
        lambda: Evidence(one, one[None]),
    ],
)
def test_a_wrong_shape_is_rejected(wrong):
    with pytest.raises(TypeCheckError):
        wrong()


def test_results_are_checked_where_arguments_were_right_before():
    results = [one, one, one[:2]]

    @once_for_each_shape(typechecker=checker)
    def same(x: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch N"]:  # noqa: F722
        return results.pop(0)

    assert same(one) is same(one) is one
    with pytest.raises(TypeCheckError, match="return value"):
        same(one)


def test_every_function_that_says_shapes_is_checked():
    with_shapes = [path for path in GP.rglob("*.py") if "Float[Tensor" in path.read_text()]
    assert with_shapes
    for path in with_shapes:
        name = ".".join(["polyfed", "gp", *path.relative_to(GP).with_suffix("").parts])
        functions = [f for _, f in inspect.getmembers(import_module(name), inspect.isfunction) if f.__module__ == name]
        shaped = [f for f in functions if "Float[Tensor" in str(f.__annotations__)]
        assert all(hasattr(f, "__wrapped__") for f in shaped), f"{name} was imported before the checks were installed"
