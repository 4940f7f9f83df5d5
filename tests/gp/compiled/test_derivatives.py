"""Derivatives that are compiled, against central differences of what they are the derivative of."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from polyfed.gp import infer
from polyfed.gp.exact import ExactModel
from polyfed.gp.kernels import KERNELS, MetricKernel
from problems import build, central_differences

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
METRIC = sorted(name for name, kernel in KERNELS.items() if isinstance(kernel, MetricKernel))
STEP = 1e-6


@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("kernel", METRIC)
def test_derivative_of_log_z(kernel, per_dimension):
    """In mixing weights, amplitudes and length-scales, at fixed sites: logZ = ½ rᵀ(K⁻¹ + H)⁻¹r − ½ log det(I + HK)."""
    kinds = ["gaussian", "bernoulli", "one-vs-each"]
    problem = build(kinds, seed=3, sizes=4, kernels=[kernel, "rbf"], per_dimension=per_dimension)
    q = infer(problem.model(), tolerance=0.0, max_steps=3).q
    assert q.by.keys() == {"a", "amplitude", "phi1"}  # torch made none of it
    h, r = q.h.detach(), q.r.detach()

    def log_z() -> Tensor:
        K = ExactModel(problem.prior, problem.rows()).K
        A = torch.eye(len(h), dtype=torch.float64) + K * h
        return 0.5 * r @ torch.linalg.solve(A, K @ r) - 0.5 * torch.linalg.slogdet(A).logabsdet

    of = problem.prior.group("mixing") | problem.prior.group("kernels")
    for (name, at), slope in zip(of.items(), torch.autograd.grad(q.slope(), list(of.values())), strict=True):
        torch.testing.assert_close(slope, central_differences(log_z, at), rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("name", [name for name in METRIC if KERNELS[name].parameters])
def test_derivative_of_profile(name):
    """A weight times s'(t) / s(t) for each t = φ₁ d."""
    from polyfed.gp.compiled.profiles import ADDRESSES

    numbers, number = np.ctypeslib.ndpointer(np.float64), ctypes.c_double
    of_profile, of_slope = (
        ctypes.CFUNCTYPE(None, numbers, number, ctypes.c_ssize_t, numbers)(address)
        for address in ADDRESSES[KERNELS[name].profile]
    )
    d, phi1 = np.array([1e-3, 0.2, 1.0, 2.5, 6.0, 20.0]), 0.7

    def logarithm(t: np.ndarray) -> np.ndarray:
        s = np.empty_like(t)
        of_profile(t, 1.0, len(t), s)
        return np.log(s)

    weights = np.arange(1.0, 7.0)
    found = weights.copy()
    of_slope(d, phi1, len(d), found)
    expected = weights * (logarithm(phi1 * d + STEP) - logarithm(phi1 * d - STEP)) / (2 * STEP)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
