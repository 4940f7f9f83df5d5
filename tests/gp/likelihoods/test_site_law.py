"""The site is the derivative of the local bound: h = −2 ∂ℓ/∂v ≥ 0 and r = ∂ℓ/∂m + h m."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyfed.gp import Likelihood
from problems import KINDS, LOGISTIC, labels, law, likelihood, normal, problems

CASES = [(kind, "polya-gamma") for kind in KINDS] + [(kind, "gaussian") for kind in LOGISTIC]


def difference(value, x: Tensor, step: Tensor, column: int) -> Tensor:
    """Central differences of fourth order in one column of x."""

    def at(k: int) -> Tensor:
        moved = x.clone()
        moved[:, column] += k * step[:, column]
        return value(moved)

    return (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * step[:, column])


def numerical_site(of: Likelihood, y: Tensor, m: Tensor, v: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    in_m, in_v = torch.full_like(m, 1e-3), 1e-2 * v
    columns = range(m.shape[1])
    dm = [difference(lambda t: of.local_bound(y, t, v, noise), m, in_m, j) for j in columns]
    dv = [difference(lambda t: of.local_bound(y, m, t, noise), v, in_v, j) for j in columns]
    h = -2.0 * torch.stack(dv, -1)
    return h, torch.stack(dm, -1) + h * m


@pytest.mark.parametrize(("kind", "bound"), CASES)
@given(seed=st.integers(0, 2**16), classes=st.integers(2, 6), std=st.floats(0.1, 6.0))
@law(25)
def test_the_site_is_the_derivative_of_the_local_bound(kind, bound, seed, classes, std):
    rng = np.random.default_rng(seed)
    of = likelihood(kind, bound=bound, classes=classes)
    y = labels(of, 12, rng)
    rows = of.pattern(y).shape[1]
    m, v = std * normal(rng, 12, rows), (2.0 * normal(rng, 12, rows)).exp()
    noise = normal(rng).exp()

    h, r = of.site(y, m, v, noise)
    assert h.shape == r.shape == (12, rows)
    assert of.local_bound(y, m, v, noise).shape == (12,)
    assert (h >= 0.0).all()
    expected_h, expected_r = numerical_site(of, y, m, v, noise)
    torch.testing.assert_close(h, expected_h, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(r, expected_r, rtol=1e-6, atol=1e-6)


@given(problem=problems(powers=(0.25, 1.0, 3.0)), seed=st.integers(0, 1000))
@law(15)
def test_the_rows_raise_site_and_bound_to_the_same_power(problem, seed):
    rows = problem.rows()
    rng = np.random.default_rng(seed)
    m, v = normal(rng, len(rows)).requires_grad_(), normal(rng, len(rows)).exp().requires_grad_()
    dm, dv = torch.autograd.grad(rows.local_bound(problem.prior, m, v), [m, v])
    h, r = rows.sites(problem.prior, m, v)
    torch.testing.assert_close(h, -2.0 * dv, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(r, dm + h * m.detach(), rtol=1e-8, atol=1e-8)
