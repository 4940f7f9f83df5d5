"""Kernels: symmetric, positive semi-definite, with a diagonal and a gradient, however far apart the inputs lie."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.gp.kernels import KERNELS, Kernel, MetricKernel, kernel_of, squared_distance
from problems import law, normal

every_kernel = pytest.mark.parametrize("kernel", [*KERNELS, "rbf + periodic", "matern52 * (linear + laplace)"])
structures = st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**16), st.booleans())


def inputs(kernel: Kernel, structure) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    n, d, seed, per_dimension = structure
    rng = np.random.default_rng(seed)
    x = normal(rng, n, d)
    n_scales = d if per_dimension else 1
    return torch.cat([x, x[:1]]), {k: normal(rng, p.size(n_scales)).exp() for k, p in kernel.parameters.items()}


def ones(kernel: Kernel, n_scales: int = 1) -> dict[str, torch.Tensor]:
    return {name: torch.ones(p.size(n_scales), dtype=torch.float64) for name, p in kernel.parameters.items()}


@every_kernel
@given(structure=structures)
@law(20)
def test_symmetric_and_positive_semi_definite(kernel, structure):
    k = kernel_of(kernel)
    x, phi = inputs(k, structure)
    K = k(x, x, phi)
    torch.testing.assert_close(K, K.mT, rtol=0.0, atol=1e-14)
    assert torch.linalg.eigvalsh(K).min() >= -1e-13 * len(K)


@every_kernel
@given(structure=structures)
@law(20)
def test_parts_of_the_matrix_are_the_matrix(kernel, structure):
    k = kernel_of(kernel)
    x, phi = inputs(k, structure)
    K = k(x, x, phi)
    some = x[: len(x) // 2 + 1]
    torch.testing.assert_close(k(some, x, phi), K[: len(some)], rtol=1e-12, atol=1e-12)
    both = torch.stack([x, x + 1.0])
    torch.testing.assert_close(k(both, both, phi)[0], K, rtol=1e-12, atol=1e-12)
    doubled = {name: torch.stack([value, value]) for name, value in phi.items()}
    torch.testing.assert_close(k(both, both, doubled)[0], K, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e2, 1e4, 1e6, 1e9])
@every_kernel
def test_the_diagonal_is_that_of_the_matrix_at_any_scale(kernel, scale):
    k, x = kernel_of(kernel), scale * normal(np.random.default_rng(0), 30, 7)
    expected = torch.ones(30, dtype=torch.float64)
    torch.testing.assert_close(k.diagonal(x, ones(k)), expected, rtol=0.0, atol=1e-14)
    torch.testing.assert_close(k(x, x, ones(k)).diagonal(), expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e2, 1e4, 1e6, 1e9])
@every_kernel
def test_repeated_inputs_are_one_at_any_scale(kernel, scale):
    k, x = kernel_of(kernel), scale * normal(np.random.default_rng(0), 8, 7)
    x = torch.cat([x, x])
    K = k(x, x, ones(k))
    torch.testing.assert_close(K[:8, 8:], K[:8, :8], rtol=0.0, atol=1e-12)
    assert torch.linalg.eigvalsh(K).min() >= -1e-12


@every_kernel
def test_gradients_are_finite_where_inputs_coincide(kernel):
    k, x = kernel_of(kernel), normal(np.random.default_rng(0), 4, 3)
    x = torch.cat([x, x, torch.zeros(2, 3, dtype=torch.float64)]).requires_grad_()
    phi = {name: value.requires_grad_() for name, value in ones(k, 3).items()}
    value = k(x, x, phi).square().sum() + k.diagonal(x, phi).sum()
    for gradient in torch.autograd.grad(value, [x, *phi.values()], allow_unused=True):
        assert gradient is None or torch.isfinite(gradient).all()


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_gradient_of_squared_distances_is_that_of_differences(batch):
    """Also of pairs that are close, of which the distance is computed in another way."""
    rng = np.random.default_rng(0)
    x, x2 = normal(rng, *batch, 6, 3), normal(rng, *batch, 4, 3)
    x = torch.cat([x, x[..., :2, :], x[..., :1, :] + 1e-4], -2).requires_grad_()
    x2 = torch.cat([x2, x[..., 3:4, :].detach()], -2).requires_grad_()
    weight, weight2 = normal(rng, *batch, 9, 9), normal(rng, *batch, 9, 5)

    def total(distance) -> torch.Tensor:
        return (weight * distance(x, x)).sum() + (weight2 * distance(x, x2).square()).sum()

    found = torch.autograd.grad(total(squared_distance), [x, x2])
    by_differences = torch.autograd.grad(
        total(lambda a, b: (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)), [x, x2]
    )
    for mine, theirs in zip(found, by_differences, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@every_kernel
def test_no_inputs_no_covariance(kernel):
    k, x = kernel_of(kernel), torch.zeros(0, 3, dtype=torch.float64)
    assert k(x, x, ones(k)).shape == (0, 0)
    assert k(x, torch.ones(2, 3, dtype=torch.float64), ones(k)).shape == (0, 2)
    assert k.diagonal(x, ones(k)).shape == (0,)


# x = (0, 0) and x' = (1, 2) with φ₁ = (4, ¼): Σ φ₁ d² = 4 + 1 = 5, Σ φ₁ |d| = 4 + ½
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rbf", exp(-2.5)),
        ("laplace", exp(-2.25)),
        ("cauchy", 1.0 / 6.0),
        ("matern32", (1.0 + sqrt(15.0)) * exp(-sqrt(15.0))),
        ("matern52", (1.0 + 5.0 + 25.0 / 3.0) * exp(-5.0)),
        ("linear", 0.0),
        ("affine", sqrt(2.0 / 7.0)),  # (0, 0, √2) and (1, 2, √2), at length one
    ],
)
def test_values_by_hand(name, value):
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    phi1 = torch.tensor([4.0, 0.25], dtype=torch.float64)
    assert KERNELS[name](x, x, {"phi1": phi1})[0, 1].item() == pytest.approx(value, rel=1e-14)


def test_the_linear_kernel_is_the_cosine():
    x = torch.tensor([[3.0, 4.0], [30.0, 40.0], [4.0, -3.0]], dtype=torch.float64)
    K = KERNELS["linear"](x, x, {})
    torch.testing.assert_close(K[0], torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))


METRIC = [name for name, kernel in KERNELS.items() if isinstance(kernel, MetricKernel) and kernel.has_length_scale]


@pytest.mark.parametrize("name", METRIC)
def test_length_scales_and_phi1_are_two_names_of_one_thing(name):
    kernel = KERNELS[name]
    lengths = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    ((of, found),) = kernel.length_scales({"phi1": kernel.start(lengths)["phi1"]})
    assert of == name
    torch.testing.assert_close(found, lengths)
    # The covariance at a distance of one length-scale does not depend on the length-scale.
    at_one = [
        kernel(
            torch.zeros(1, 1).double(), length.reshape(1, 1), {"phi1": kernel.start(length.reshape(1))["phi1"].exp()}
        )
        for length in lengths
    ]
    torch.testing.assert_close(at_one[0], at_one[1])
    torch.testing.assert_close(at_one[0], at_one[2])
