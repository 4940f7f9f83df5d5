"""Derivatives of kernels that are written out, against central differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyfed.gp.kernels import KERNELS, MetricKernel
from problems import central_differences, normal

METRIC = [name for name, kernel in KERNELS.items() if isinstance(kernel, MetricKernel) and kernel.has_length_scale]
T = torch.tensor([[1e-3, 0.2, 1.0], [2.5, 6.0, 20.0]], dtype=torch.float64)
STEP = 1e-6


def kernel_of(name: str) -> MetricKernel:
    kernel = KERNELS[name]
    assert isinstance(kernel, MetricKernel)
    return kernel


@pytest.mark.parametrize("name", METRIC)
def test_derivative_of_profile(name):
    kernel, s = kernel_of(name), KERNELS[name].profile
    expected = (s(T + STEP, 1.0) - s(T - STEP, 1.0)) / (2 * STEP)
    torch.testing.assert_close(kernel.derivative(T, s(T, 1.0)), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", METRIC)
def test_log_slope_of_profile(name):
    """φ₁ ∂ log s(φ₁ d) / ∂φ₁, as a matrix and one number."""
    kernel, phi1 = kernel_of(name), torch.tensor(0.7, dtype=torch.float64)
    matrix, factor = kernel.log_slope(T, phi1)
    logarithm = [kernel.profile(T, phi1 * scale).log() for scale in (1 + STEP, 1 - STEP)]
    torch.testing.assert_close(matrix * factor, (logarithm[0] - logarithm[1]) / (2 * STEP), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", METRIC)
def test_derivative_by_input(name):
    """Σ G t in φ₁ of each input, to which it is linear: exact differences."""
    kernel, rng = kernel_of(name), np.random.default_rng(0)
    x, x2, G = normal(rng, 6, 3), normal(rng, 4, 3), normal(rng, 6, 4)
    phi1 = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)

    def value() -> torch.Tensor:
        return (G * kernel.metric(kernel.scaled(x, phi1), kernel.scaled(x2, phi1))).sum()

    torch.testing.assert_close(kernel.by_input(G, x, x2), central_differences(value, phi1), rtol=1e-7, atol=1e-7)
