"""`solve` against 50 digits where h K is anything from 1e-12 to 1e14, and the errors of a covariance that is none."""

from __future__ import annotations

import pickle

import mpmath
import numpy as np
import pytest
import torch

from polyfed.gp.linalg import NotPositiveDefinite, cholesky, log_z, solve

N = 4
EPS = 2.0**-52


def reference(K: np.ndarray, r: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """m, v and logZ with 50 digits: Σ = (I + KH)⁻¹ K."""
    with mpmath.workdps(50):
        K_, r_ = mpmath.matrix(K.tolist()), mpmath.matrix(r.tolist())
        A = mpmath.eye(N) + K_ * mpmath.diag(h.tolist())
        Sigma = mpmath.inverse(A) * K_
        m = Sigma * r_
        logz = -mpmath.log(mpmath.det(A)) / 2 + (r_.T * m)[0] / 2
        return np.array(m.tolist(), float)[:, 0], np.array([float(Sigma[i, i]) for i in range(N)]), float(logz)


def covariance(rank: int, rng: np.random.Generator) -> np.ndarray:
    F = rng.standard_normal((N, rank))
    return F @ F.T


def assert_accurate(K, r, h, *, relative: float, of_prior: float) -> None:
    """Errors of m and v relative to their own size, or to the prior's where that is much larger."""
    q = solve(*(torch.as_tensor(t) for t in (K, r, h)))
    m, v, logz = reference(K, r, h)
    prior = np.diag(K)
    assert (abs(q.m.numpy() - m) <= relative * abs(m) + of_prior * np.sqrt(prior)).all()
    assert (abs(q.v.numpy() - v) <= relative * v + of_prior * prior).all()
    assert abs(q.logz.item() - logz) <= relative * abs(logz) + 4 * N * EPS


PRECISIONS = [1e-12, 1e-8, 1e-4, 1.0, 1e4, 1e8, 1e11, 1e14]


@pytest.mark.parametrize("h_scale", PRECISIONS)
def test_a_regular_covariance_keeps_its_digits(h_scale):
    rng = np.random.default_rng(0)
    for _ in range(10):
        h = h_scale * rng.uniform(0.5, 2.0, N)
        assert_accurate(covariance(2 * N, rng), h * rng.standard_normal(N), h, relative=1e-9, of_prior=1e-11)


@pytest.mark.parametrize("h_scale", PRECISIONS)
def test_rows_without_precision_may_still_pull(h_scale):
    # h = 0 with r ≠ 0: a site that is linear, as the Gaussian bound gives far from the label's side.
    rng = np.random.default_rng(1)
    for _ in range(10):
        h = h_scale * rng.uniform(0.5, 2.0, N)
        r = h * rng.standard_normal(N)
        h[[1, 3]] = 0.0
        r[[1, 3]] = rng.standard_normal(2)
        assert_accurate(covariance(2 * N, rng), r, h, relative=1e-9, of_prior=1e-11)


def test_a_purely_linear_site_shifts_the_prior_mean():
    rng = np.random.default_rng(2)
    K, r = covariance(2, rng), rng.standard_normal(N)
    assert_accurate(K, r, np.zeros(N), relative=1e-13, of_prior=1e-14)


@pytest.mark.parametrize("h_scale", PRECISIONS)
def test_precisions_of_very_different_size(h_scale):
    rng = np.random.default_rng(3)
    for _ in range(10):
        h = h_scale * np.array([1.0, 1e-6, 1e-12, 1e-3])
        r = np.sqrt(h) * rng.standard_normal(N)
        assert_accurate(covariance(2 * N, rng), r, h, relative=1e-9, of_prior=1e-11)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("h_scale", PRECISIONS)
def test_a_singular_covariance_loses_no_more_than_it_must(rank, h_scale):
    # The last bit of K, which decides whether K is singular at all, is worth EPS·hK of the noise: that many digits
    # are lost by any method. The labels lie off the range of K, the worst case.
    rng = np.random.default_rng(4)
    for _ in range(10):
        K, y = covariance(rank, rng), rng.standard_normal(N)
        h = h_scale * rng.uniform(0.5, 2.0, N)
        lost = 10.0 * EPS * max(1e4, np.trace(h[:, None] * K))
        q = solve(*(torch.as_tensor(t) for t in (K, h * y, h)))
        m, v, _ = reference(K, h * y, h)
        assert np.isfinite(q.logz.item())
        assert (abs(q.m.numpy() - m) <= lost * np.abs(y).max()).all()
        assert (abs(q.v.numpy() - v) <= 1e-11 * np.diag(K)).all()


def test_an_empty_problem():
    none = torch.zeros(0, dtype=torch.float64)
    q = solve(none.reshape(0, 0), none, none)
    assert q.logz.item() == 0.0
    assert q.m.shape == q.v.shape == (0,)


def test_no_gradient_leaks_out_of_solve():
    K = torch.eye(2, dtype=torch.float64, requires_grad=True)
    one = torch.ones(2, dtype=torch.float64)
    q = solve(K, one, one)
    assert not any(getattr(q, name).requires_grad for name in ("m", "v", "alpha", "L", "B_inv", "logz"))
    assert log_z(K, one, one).requires_grad


# ---- errors --------------------------------------------------------------------------------------------------


def eye(n: int = 5, **at: float) -> torch.Tensor:
    A = torch.eye(n, dtype=torch.float64)
    for row, value in at.items():
        A[int(row[1:]), int(row[1:])] = value
    return A


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), float("-inf")])
def test_the_error_knows_its_row(value):
    with pytest.raises(NotPositiveDefinite) as caught:
        cholesky(eye(r3=value))
    assert caught.value.row == 3
    assert caught.value.batch == 0
    assert str(caught.value) == (
        "the covariance is not positive definite at row 3; "
        "raise the noise, or lower the amplitude or the mixing weights of this task."
    )


def test_the_error_knows_its_problem_in_a_batch():
    with pytest.raises(NotPositiveDefinite) as caught:
        cholesky(torch.stack([eye(), eye(r2=-1.0), eye(r1=-1.0)]))
    assert (caught.value.batch, caught.value.row) == (1, 2)


def test_the_error_survives_a_trip_to_another_process():
    # As joblib's workers send it.
    error = NotPositiveDefinite("broken", row=3, batch=2, where="task 'a'", remedy="mend it")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "task 'a': broken; mend it."
    assert (again.row, again.batch) == (3, 2)


def test_a_covariance_with_a_nan_off_the_diagonal_is_found():
    A = eye()
    A[4, 1] = A[1, 4] = float("nan")
    with pytest.raises(NotPositiveDefinite, match="at row 4"):
        cholesky(A)
