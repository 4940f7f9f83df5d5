"""Log densities of observed labels: against scipy's distributions, adaptive integration and numbers found by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from polyfed.errors import DataError
from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)

LATENT_STDS = (0.0, 1e-6, 0.05, 0.7, 2.0, 5.0)


def log_average(log_likelihood, m, s, landmark):
    """log E[exp(log_likelihood(f))] over f ~ N(m, s²), by adaptive integration between the landmarks.

    The integrand is divided by its largest value, so that quad works on a scale of 1 however small the average is.
    """
    if s == 0:
        return log_likelihood(m)

    def log_integrand(f):
        return log_likelihood(f) - 0.5 * ((f - m) / s) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(s)

    lower, upper = min(m - 12 * s, landmark - s), max(m + 12 * s, landmark + s)
    grid = np.linspace(lower, upper, 20_001)
    logs = log_integrand(grid)
    top = logs.max()
    lower, upper = grid[logs > top - 45][[0, -1]] + np.array([-1, 1]) * (grid[1] - grid[0])
    points = np.linspace(lower, upper, 23)[1:-1]  # so that a narrow peak is not stepped over
    options = {"points": points, "epsabs": 0, "epsrel": 1e-10, "limit": 2000}
    return top + np.log(integrate.quad(lambda f: np.exp(log_integrand(f) - top), lower, upper, **options)[0])


# Regression


def test_regression_is_the_normal_density():
    p = RegressionPrediction([1.0, -2.0, 0.0], [3.0, 0.0, 5.0], [4.0, 1.0, 12.0])
    y = [0.5, 7.0, 400.0]
    np.testing.assert_allclose(p.log_density(y), stats.norm.logpdf(y, [1, -2, 0], [5, 1, 13]), rtol=1e-12)


def test_a_certain_prediction_has_a_finite_density():
    right, wrong = RegressionPrediction([1.0, 1.0], 0.0, 0.0).log_density([1.0, 2.0])
    assert 300 < right < np.inf
    assert -np.inf < wrong < -1e100


# Robust


@pytest.mark.parametrize("dof", [0.5, 1.0, 4.0, 30.0, 1e4])
@pytest.mark.parametrize("s", LATENT_STDS)
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_robust_is_the_convolution(s, scale, dof):
    y = np.array([5.0, 5.3, 7.0, -4.0, 60.0])
    p = RobustPrediction(np.full(5, 5.0), s, scale, dof)

    constant = stats.t.logpdf(0, dof) - np.log(scale)

    def convolved(y):
        def log_likelihood(f):  # scipy's own, at each node, would take minutes
            return constant - 0.5 * (dof + 1) * np.log1p(((y - f) / scale) ** 2 / dof)

        return log_average(log_likelihood, 5.0, s, landmark=y)

    np.testing.assert_allclose(p.log_density(y), [convolved(value) for value in y], rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("dof", [0.3, 2.0, 7.0, 1e3])
def test_robust_without_latent_doubt_is_student_t_however_far_out(dof):
    y = np.array([0.0, 1.0, 30.0, 1e6, -1e30])
    p = RobustPrediction(np.zeros(5), 0.0, 2.0, dof)
    np.testing.assert_allclose(p.log_density(y), stats.t.logpdf(y, dof, 0, 2.0), rtol=1e-9, atol=1e-8)


def test_robust_at_its_limits():
    y = np.array([0.0, 3.0, 30.0])
    without_noise = RobustPrediction(np.zeros(3), 2.0, 0.0, 4.0)
    np.testing.assert_allclose(without_noise.log_density(y), stats.norm.logpdf(y, 0, 2), rtol=1e-12)
    for dof in (1e14, np.inf):
        p = RobustPrediction(np.zeros(3), 3.0, 4.0, dof)
        np.testing.assert_allclose(p.log_density(y), stats.norm.logpdf(y, 0, 5), atol=1e-8)
    # By hand, for Cauchy noise: the density at the centre is the Voigt profile Re[w(i c / s sqrt 2)] / s sqrt(2 pi).
    s, c = 1.5, 0.4
    voigt = special.wofz(1j * c / (s * np.sqrt(2))).real / (s * np.sqrt(2 * np.pi))
    assert RobustPrediction([0.0], s, c, 1.0).log_density([0.0])[0] == pytest.approx(np.log(voigt), abs=1e-9)


@pytest.mark.parametrize("unit", [1e-100, 1e-9, 1e9, 1e100])
def test_robust_has_no_favourite_unit(unit):
    one = RobustPrediction([1.0], [1.0], [2.0], [3.0]).log_density([8.0])
    other = RobustPrediction([unit], [unit], [2 * unit], [3.0]).log_density([8 * unit])
    np.testing.assert_allclose(other + np.log(unit), one, rtol=1e-10)


# Counts


@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0, 1e5])
@pytest.mark.parametrize("s", LATENT_STDS)
@pytest.mark.parametrize("m", [-3.0, 1.0, 8.0])
def test_counts_are_averaged_negative_binomials(m, s, rho):
    y = np.array([0.0, 1.0, 4.0, 150.0])

    def averaged(k):
        def log_likelihood(f):
            return (
                special.gammaln(k + rho)
                - special.gammaln(rho)
                - special.gammaln(k + 1)
                + k * (f - np.logaddexp(f, np.log(rho)))
                - rho * np.logaddexp(0, f - np.log(rho))
            )

        return log_average(log_likelihood, m, s, landmark=np.log(k + 0.01))

    np.testing.assert_allclose(
        CountPrediction(np.full(4, m), s, rho).log_density(y), [averaged(k) for k in y], rtol=1e-9, atol=1e-7
    )


def test_counts_without_latent_doubt_are_scipys():
    rate, rho = np.array([0.2, 5.0, 400.0, 1e5]), np.array([0.5, 2.0, 1e3, 50.0])
    y = np.array([0, 11, 390, 80_000])
    exact = stats.nbinom.logpmf(y, rho, rho / (rho + rate))
    np.testing.assert_allclose(CountPrediction(np.log(rate), 0.0, rho).log_density(y), exact, rtol=1e-8)
    poisson = stats.poisson.logpmf(y, rate)
    for dispersion in (1e300, np.inf):
        np.testing.assert_allclose(CountPrediction(np.log(rate), 0.0, dispersion).log_density(y), poisson, rtol=1e-7)


def test_probabilities_of_all_counts_add_up_to_one():
    k = np.arange(3000)
    for m, s, rho in [(1.0, 0.0, 3.0), (2.0, 0.3, 1e9), (0.0, 0.8, 0.7)]:
        p = CountPrediction(np.full(3000, m), s, rho)
        assert np.exp(p.log_density(k)).sum() == pytest.approx(1, abs=1e-6)


def test_huge_counts_lose_no_digits():
    # A Poisson count of 1e12 at its own rate: by Stirling, -log(2 pi y) / 2.
    p = CountPrediction([np.log(1e12)], 0.0, 1e300)
    assert p.log_density([1e12])[0] == pytest.approx(-0.5 * np.log(2 * np.pi * 1e12), abs=1e-3)  # exp(log y) is not y
    # With latent doubt s the log count is N(m, s²), as 1/sqrt(y) and dispersion are nothing to it: a lognormal.
    y, s = np.exp(27.0 + np.array([0.0, 0.5, -2.0])).round(), 0.5
    p = CountPrediction(np.full(3, 27.0), s, 1e14)
    np.testing.assert_allclose(p.log_density(y), stats.lognorm.logpdf(y, s, scale=np.exp(27.0)), atol=1e-6)


# Proportions


@pytest.mark.parametrize("s", LATENT_STDS)
@pytest.mark.parametrize("m", [-20.0, -1.0, 0.0, 4.0])
def test_proportions_are_averaged_binomials(m, s):
    y = np.array([(0, 1), (1, 1), (3, 10), (10, 10), (0, 2000), (1500, 2000)])

    def averaged(k, n):
        def log_likelihood(f):
            choose = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
            return choose - k * np.logaddexp(0, -f) - (n - k) * np.logaddexp(0, f)

        return log_average(log_likelihood, m, s, landmark=np.log((k + 0.01) / (n - k + 0.01)))

    p = ProportionPrediction(np.full(len(y), m), s, 0.5)
    np.testing.assert_allclose(p.log_density(y), [averaged(k, n) for k, n in y], rtol=1e-9, atol=1e-7)


def test_proportions_of_an_endless_latent():
    # f is far above or far below 0 with probability 1/2 each: all or none succeed.
    p = ProportionPrediction([0.0, 0.0, 0.0], 1e4, 0.5)
    all_of, none_of, half = p.log_density([(5, 5), (0, 5), (2, 5)])
    assert all_of == pytest.approx(np.log(0.5), abs=1e-2)
    assert none_of == pytest.approx(all_of, abs=1e-9)
    # Between, the latent is flat at 1 / s sqrt(2 pi), and the integral is n! / k! (n-k)! B(k, n-k) = n / k (n-k).
    assert half == pytest.approx(np.log(5 / 6 / (1e4 * np.sqrt(2 * np.pi))), abs=1e-6)


# Classes


def test_classes_are_looked_up_as_users_write_them():
    p = BinaryPrediction([0.8, 0.1, 0.25], ("no", "yes"), [1, -2, -1], 1.0)
    np.testing.assert_allclose(p.log_density(["yes", "yes", "no"]), np.log([0.8, 0.1, 0.75]))
    for y in (np.array(["yes", "yes", "no"]), pd.Series(["yes", "yes", "no"]), pd.Categorical(["yes", "yes", "no"])):
        assert p.positions(y).tolist() == [1, 1, 0]
    stage = MulticlassPrediction([[0.2, 0.7, 0.1], [0.5, 0.2, 0.3]], (1, 2, 3), np.zeros((2, 3)), 1.0)
    for y in ([2, 3], np.array([2.0, 3.0]), torch.tensor([2, 3])):
        np.testing.assert_allclose(stage.log_density(y), np.log([0.7, 0.3]))


def test_a_probability_of_zero_is_taken_as_tiny():
    p = MulticlassPrediction([[1.0, 0.0]], ("a", "b"), np.zeros((1, 2)), 1.0)
    assert p.log_density(["b"])[0] == pytest.approx(-300 * np.log(10))
    assert p.log_density(["a"])[0] == 0.0


def test_a_binary_probability_that_rounds_to_one_asks_the_latent():
    f = np.array([25.0, 40.0, 200.0])
    p = BinaryPrediction(special.expit(f), (0, 1), f, 0.0)
    np.testing.assert_allclose(p.log_density([0, 0, 0]), -f, rtol=1e-5)
    np.testing.assert_allclose(p.log_density([1, 1, 1]), -np.exp(-f), atol=1e-15)
    # A latent that contradicts the probability is not believed: the label cannot be likelier than rounding allows.
    for contradiction in (0.0, np.nan):
        assert BinaryPrediction([1.0], (0, 1), [contradiction], 1.0).log_density([0])[0] < -37


# What all have in common


def every_kind(n=3):
    m, s = np.linspace(-1, 1, n), np.linspace(0, 2, n)
    return {
        "regression": (RegressionPrediction(m, s, 1.0), np.zeros(n)),
        "robust": (RobustPrediction(m, s, 1.0, 4.0), np.zeros(n)),
        "count": (CountPrediction(m, s, 2.0), np.arange(n)),
        "proportion": (ProportionPrediction(m, s, special.expit(m)), np.tile([1, 3], (n, 1))),
        "binary": (BinaryPrediction(special.expit(m), ("no", "yes"), m, s), np.array(["yes"] * n)),
        "multiclass": (
            MulticlassPrediction(np.tile([0.2, 0.3, 0.5], (n, 1)), ("a", "b", "c"), np.zeros((n, 3)), 1.0),
            np.array(["b"] * n),
        ),
    }


KINDS = list(every_kind())


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_densities(kind):
    p, y = every_kind(0)[kind]
    assert p.log_density(y).shape == (0,)
    assert p.log_density([]).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_labels_as_rows(kind):
    p, y = every_kind(3)[kind]
    with pytest.raises(DataError, match="do not fit 3 predictions; give"):
        p.log_density(y[:2])


@settings(max_examples=30)
@given(st.sampled_from(["robust", "count", "proportion"]), st.permutations(range(9)))
def test_a_row_does_not_depend_on_its_neighbours(kind, order):
    p, y = every_kind(9)[kind]
    fields = {name: getattr(p, name)[order] for name in p.__dataclass_fields__}
    np.testing.assert_allclose(type(p)(**fields).log_density(y[order]), p.log_density(y)[order], rtol=1e-9)


@settings(max_examples=100)
@given(
    st.sampled_from(["robust", "count", "proportion"]),
    st.floats(-400, 400),
    st.floats(0, 1e3),
    st.floats(1e-12, 1e12),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_densities_are_finite_whatever_comes(kind, m, s, shape, k, rest):
    p, y = {
        "robust": (RobustPrediction([m], [s], [shape], [max(shape, 0.1)]), [k]),
        "count": (CountPrediction([m], [s], [shape]), [k]),
        "proportion": (ProportionPrediction([m], [s], [0.5]), [(k, k + rest + 1)]),
    }[kind]
    (density,) = p.log_density(y)
    assert np.isfinite(density)
    assert kind == "robust" or density < 1e-6  # a probability


def test_a_latent_that_is_not_known_spoils_its_own_row_only():
    for p, y in (
        (RobustPrediction([np.nan, 1.0], 1.0, 1.0, 3.0), [1, 1]),
        (CountPrediction([np.nan, 1], 1, 2), [1, 1]),
        (ProportionPrediction([0, 0], [np.inf, 1], 0.5), [(1, 2), (1, 2)]),
    ):
        assert np.isnan(p.log_density(y)).tolist() == [True, False]


def test_more_rows_than_fit_into_the_cache():
    rng = np.random.default_rng(0)
    m, s, y = rng.normal(size=9000), rng.gamma(2, 0.4, 9000), rng.integers(0, 9, 9000)
    p, some = CountPrediction(m, s, 2.0), CountPrediction(m[::900], s[::900], 2.0)
    np.testing.assert_allclose(p.log_density(y)[::900], some.log_density(y[::900]), rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "y", "text"),
    [
        ("regression", [1, np.nan, 2], "row 1: label nan is not finite; correct it or drop the row."),
        ("robust", ["a", "b", "c"], "the labels are not all numbers; give one label for each row predicted."),
        ("count", [0, 1, 2.5], "row 2: label 2.5 is not a whole number from 0 up; correct it or drop the row."),
        ("count", [0, -1, 2], "row 1: label -1 is not a whole number from 0 up; correct it or drop the row."),
        (
            "proportion",
            [[1, 2], [3, 2], [0, 1]],
            "row 1: label (3, 2) has more successes than trials;"
            " give two columns, successes and trials, as in [[3, 10], [0, 4]].",
        ),
        ("proportion", [[1, 2], [0, 0], [0, 1]], "row 1: label (0, 0) has no trials; drop the row."),
        (
            "proportion",
            [1, 2, 3],
            "labels of shape (3,) do not fit 3 predictions;"
            " give two columns, successes and trials, as in [[3, 10], [0, 4]].",
        ),
        (
            "binary",
            ["yes", "noo", "no"],
            "row 1: label 'noo' is not one of the classes; did you mean 'no'? known are 'no', 'yes'.",
        ),
        ("multiclass", ["a", "b", 3], "row 2: label 3 is not one of the classes; known are 'a', 'b', 'c'."),
        ("binary", [["yes"], ["no"], ["no"]], "the labels are not one column; give one label for each row predicted."),
    ],
)
def test_wrong_labels_are_named(kind, y, text):
    with pytest.raises(DataError) as caught:
        every_kind(3)[kind][0].log_density(y)
    assert str(caught.value) == text
