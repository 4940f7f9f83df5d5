"""Averages over Gaussians against fine sums and plain Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.gp.likelihoods import LogisticSoftmax, OneVsEach
from polyfed.gp.quadrature import expected_logistic, expected_probabilities, expected_sigmoid, gauss_hermite
from problems import law, normal


def softmax(f: torch.Tensor) -> torch.Tensor:
    return torch.softmax(f, -1)


def logistic_softmax(f: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.nn.functional.logsigmoid(f), -1)


# ---- the logistic function -----------------------------------------------------------------------------------


def fine_sums(m: torch.Tensor, s: float) -> list[torch.Tensor]:
    """The three averages by a trapezoid rule in z of a step far below what they need."""
    z = torch.linspace(-10.0, 10.0, 4001 if s < 20.0 else 400_001, dtype=torch.float64)
    w = torch.exp(-0.5 * z.square())
    f = m[:, None] + s * z
    sigmoid = torch.sigmoid(f)
    softplus = torch.nn.functional.softplus(f, threshold=700.0)
    return [(w * value).sum(-1) / w.sum() for value in (softplus, sigmoid, sigmoid * torch.sigmoid(-f))]


@pytest.mark.parametrize("s", [1e-3, 0.1, 0.5, 0.9, 0.999, 1.0, 1.001, 1.5, 3.0, 10.0, 100.0])
def test_the_logistic_averages_are_good_to_1e_8(s):
    m = torch.tensor([-1e3, -50.0, -10.0, -3.0, -1.0, 0.0, 0.3, 2.0, 8.0, 40.0], dtype=torch.float64)
    for got, expected in zip(expected_logistic(m, torch.full_like(m, s * s)), fine_sums(m, s), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)


def test_no_variance_is_the_function_itself():
    m = torch.tensor([-800.0, -2.0, 0.0, 5.0, 800.0], dtype=torch.float64)
    softplus, sigmoid, slope = expected_logistic(m, torch.zeros_like(m))
    torch.testing.assert_close(softplus, torch.logaddexp(m, torch.zeros_like(m)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sigmoid, torch.sigmoid(m), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope, torch.sigmoid(m) * torch.sigmoid(-m), rtol=1e-12, atol=1e-12)


def test_gauss_hermite_is_exact_for_polynomials():
    z, w = gauss_hermite(8)
    moments = [(w * z**k).sum().item() for k in range(15)]
    double_factorials = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945, 0, 10_395, 0, 135_135]
    assert moments == pytest.approx(double_factorials, rel=1e-10, abs=1e-9)


# ---- class probabilities -------------------------------------------------------------------------------------


def scores(n: int, classes: int, rank: int, scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Means (n, K) and factors F (n, K, rank) of covariances F Fᵀ."""
    rng = np.random.default_rng(seed)
    return scale * normal(rng, n, classes), scale / np.sqrt(rank) * normal(rng, n, classes, rank)


@pytest.mark.parametrize("sd", [1e-5, 1e-3, 0.1, 0.5, 1.0, 1.4, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 1e2, 1e3, 5e3])
def test_two_classes_are_a_sigmoid(sd):
    gap = max(sd, 1.0) * torch.linspace(-4.0, 4.0, 41, dtype=torch.float64)
    mean = torch.stack([torch.zeros_like(gap), gap], -1)
    cov = torch.zeros(len(gap), 2, 2, dtype=torch.float64)
    cov[:, 1, 1] = sd * sd
    got = OneVsEach(2).readout(mean, cov, None)["proba"][:, 1]
    torch.testing.assert_close(got, expected_sigmoid(gap, torch.full_like(gap, sd * sd)), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("p", [softmax, logistic_softmax])
@given(
    classes=st.integers(2, 6),
    rank=st.integers(1, 3),
    scale=st.sampled_from([1e-6, 0.1, 1.0, 4.0, 50.0, 1e4]),
    seed=st.integers(0, 2**16),
)
@law(20)
def test_a_row_does_not_depend_on_the_others(p, classes, rank, scale, seed):
    mean, F = scores(5, classes, rank, scale, seed)
    mean[1:3], F[1:3] = 0.2 * mean[1:3], 0.2 * F[1:3]  # rows of the same and of other fineness
    cov = F @ F.mT
    together = expected_probabilities(p, mean, cov)
    torch.testing.assert_close(together.sum(-1), torch.ones(5, dtype=torch.float64), rtol=0.0, atol=1e-12)
    assert together.min() >= 0.0
    for some in ([0], [3], [4, 1], [2, 2]):
        alone = expected_probabilities(p, mean[some], cov[some])
        torch.testing.assert_close(alone, together[some], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("p", [softmax, logistic_softmax])
@pytest.mark.parametrize(
    ("classes", "rank", "scale"),
    [(3, 2, 1.0), (3, 3, 5.0), (10, 2, 3.0), (5, 4, 2.0), (10, 9, 3.0), (20, 8, 5.0)],  # the last three: Sobol
)
def test_grid_and_sobol_agree_with_monte_carlo(p, classes, rank, scale):
    mean, F = scores(2, classes, rank, scale, seed=7)
    z = normal(np.random.default_rng(8), 400_000, rank)
    drawn = torch.stack([p(mean[i] + z @ F[i].mT).mean(0) for i in range(2)])
    torch.testing.assert_close(expected_probabilities(p, mean, F @ F.mT), drawn, rtol=0.0, atol=5e-3)


@pytest.mark.parametrize("p", [softmax, logistic_softmax])
def test_without_variance_it_is_the_function_itself(p):
    mean, _ = scores(4, 5, 1, 2.0, seed=0)
    none = torch.zeros(4, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(expected_probabilities(p, mean, none), p(mean), rtol=1e-12, atol=1e-12)


def test_no_rows_no_probabilities():
    none = torch.zeros(0, 3, dtype=torch.float64)
    for of in (OneVsEach(3), LogisticSoftmax(3)):
        assert of.readout(none, torch.zeros(0, 3, 3, dtype=torch.float64), None)["proba"].shape == (0, 3)
