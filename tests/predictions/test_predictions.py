"""Predictions: means, stds and quantiles against scipy, numerical integrals and simulation."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from polyfed.errors import ConfigError, UnknownNameError
from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    Predictions,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)

QS = (1e-4, 0.025, 0.3, 0.5, 0.8, 0.975, 0.9999)


def examples():
    two = np.array([0.3, -1.0])
    return {
        "pulse": RegressionPrediction(two, [0.5, 0.1], 0.2),
        "robust": RobustPrediction(two, [0.5, 0.1], 0.2, 4.0),
        "visits": CountPrediction(two, [0.5, 0.1], 3.0),
        "cured": ProportionPrediction(two, [0.5, 0.1], special.expit(two)),
        "sick": BinaryPrediction([0.8, 0.1], ("no", "yes"), two, [0.5, 0.1]),
        "stage": MulticlassPrediction([[0.2, 0.7, 0.1], [0.5, 0.2, 0.3]], (1, 2, 3), np.zeros((2, 3)), np.ones((2, 3))),
    }


NUMERIC = ("pulse", "robust", "visits", "cured")


# Regression


def test_regression_is_the_normal_distribution():
    p = RegressionPrediction([1.0, -2.0], [3.0, 0.0], [4.0, 1.0])
    exact = stats.norm([1.0, -2.0], [5.0, 1.0])
    assert p.mean.tolist() == [1.0, -2.0]
    assert p.latent_std.tolist() == [3.0, 0.0]
    np.testing.assert_allclose(p.std, [5.0, 1.0], rtol=1e-15)
    for q in QS:
        np.testing.assert_allclose(p.quantile(q), exact.ppf(q), rtol=1e-12)
    np.testing.assert_allclose(p.interval(0.9), exact.interval(0.9), rtol=1e-12)
    np.testing.assert_allclose(p.interval(), exact.interval(0.95), rtol=1e-12)


# Robust: the oracle convolves the Student-t with the normal by adaptive quadrature


def student_cdf(x, s, scale, dof):
    if s == 0:
        return stats.t.cdf(x / scale, dof)

    def integrand(z):
        return stats.norm.pdf(z) * special.stdtr(dof, (x - s * z) / scale)

    centre = np.clip(x / s, -9.9, 9.9)  # where a narrow noise makes the integrand jump
    return integrate.quad(integrand, -10, 10, points=[centre], epsabs=1e-11, epsrel=1e-11, limit=500)[0]


@pytest.mark.parametrize("dof", [0.3, 1.0, 2.0, 4.0, 30.0, 1e4])
@pytest.mark.parametrize(("s", "scale"), [(0.0, 2.0), (0.05, 1.0), (1.0, 1.0), (3.0, 0.1)])
def test_robust_quantiles_invert_the_convolution(s, scale, dof):
    p = RobustPrediction([5.0], [s], [scale], [dof])
    for q in (1e-4, 0.025, 0.3, 0.8):
        assert student_cdf(p.quantile(q)[0] - 5.0, s, scale, dof) == pytest.approx(q, rel=1e-6)


@pytest.mark.parametrize("dof", [0.2, 0.5, 1.0, 3.0, 50.0])
def test_robust_without_latent_doubt_is_student_t(dof):
    p = RobustPrediction([0.0], [0.0], [1.0], [dof])
    for q in (0.001, 0.2, 0.5, 0.6, 0.99):
        np.testing.assert_allclose(p.quantile(q), stats.t.ppf(q, dof), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("dof", [1e7, 1e12, np.inf])
def test_robust_with_many_degrees_of_freedom_is_normal(dof):
    p = RobustPrediction([1.0], [3.0], [4.0], dof)
    for q in QS:
        np.testing.assert_allclose(p.quantile(q), stats.norm.ppf(q, 1.0, 5.0), rtol=1e-6)
    np.testing.assert_allclose(p.std, 5.0, rtol=1e-6)


def test_robust_rows_may_differ_in_everything():
    m, s, scale, dof = [0, 5, -1, 7], [1, 0, 2, 0], [2, 1, 0, 0], [0.5, 3, 3, 4]
    together = RobustPrediction(m, s, scale, dof).quantile(0.9)
    alone = [RobustPrediction([m[i]], [s[i]], [scale[i]], [dof[i]]).quantile(0.9)[0] for i in range(4)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    np.testing.assert_allclose(together[2:], [stats.norm.ppf(0.9, -1, 2), 7.0], rtol=1e-9)


def test_robust_std():
    p = RobustPrediction([0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [2.0, 1.0, 2.0], [4.0, 1.0, 2.0])
    assert p.std[0] == pytest.approx(np.sqrt(1 + 4 * 4 / 2))
    assert p.std[1] == pytest.approx(stats.t.ppf(stats.norm.cdf(1), 1), rel=1e-8)  # none: half of the 68.27% interval
    lower, upper = p.interval(0.6826894921370859)
    assert p.std[2] == pytest.approx((upper[2] - lower[2]) / 2, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-250, 1e-9, 1e9, 1e250])
def test_robust_has_no_favourite_unit(unit):
    p = RobustPrediction([unit], [unit], [2 * unit], [3.0])
    one = RobustPrediction([1.0], [1.0], [2.0], [3.0])
    np.testing.assert_allclose(p.quantile(0.99) / unit, one.quantile(0.99), rtol=1e-10)
    np.testing.assert_allclose(p.std / unit, one.std, rtol=1e-10)


# Counts: the oracle averages scipy's negative binomial over a very fine grid of the latent


def count_cdf(k, m, s, rho):
    z = np.linspace(-9, 9, 20_001)
    weight = np.exp(-(z**2) / 2)
    rate = np.exp(m + s * z)
    return stats.nbinom.cdf(k, rho, rho / (rho + rate)) @ weight / weight.sum()


@pytest.mark.parametrize("rho", [0.1, 1.0, 20.0, 1e5])
@pytest.mark.parametrize("s", [0.0, 0.02, 0.5, 2.0])
@pytest.mark.parametrize("m", [-3.0, 1.0, 8.0])
def test_count_quantiles_are_the_smallest_that_suffice(m, s, rho):
    p = CountPrediction([m], [s], [rho])
    for q in (0.025, 0.5, 0.975):
        k = p.quantile(q)[0]
        assert k == np.floor(k)
        assert count_cdf(k, m, s, rho) >= q - 1e-8
        assert k == 0 or count_cdf(k - 1, m, s, rho) < q + 1e-8


def test_count_distribution_by_adaptive_integration():
    m, s, rho = 2.0, 0.7, 3.0

    def integrand(z, k):
        rate = np.exp(m + s * z)
        return stats.norm.pdf(z) * stats.nbinom.cdf(k, rho, rho / (rho + rate))

    p = CountPrediction([m], [s], [rho])
    for q in (0.01, 0.3, 0.9, 0.999):
        k = p.quantile(q)[0]
        assert integrate.quad(integrand, -10, 10, args=(k,), epsabs=1e-10)[0] >= q
        assert integrate.quad(integrand, -10, 10, args=(k - 1,), epsabs=1e-10)[0] < q


def test_count_without_latent_doubt_is_negative_binomial():
    m, rho = np.log([0.2, 5.0, 400.0, 1e6]), np.array([0.5, 2.0, 1e3, 50.0])
    exact = stats.nbinom(rho, rho / (rho + np.exp(m)))
    p = CountPrediction(m, 0.0, rho)
    np.testing.assert_allclose(p.mean, exact.mean())
    np.testing.assert_allclose(p.std, exact.std())
    for q in QS:
        assert p.quantile(q).tolist() == exact.ppf(q).tolist()
    poisson = CountPrediction(m, 0.0, 1e300)
    assert poisson.quantile(0.9).tolist() == stats.poisson(np.exp(m)).ppf(0.9).tolist()


def test_count_moments_and_interval_against_simulation():
    rng = np.random.default_rng(0)
    m, s, rho, n = 1.5, 0.4, 2.5, 1_000_000
    y = rng.poisson(np.exp(rng.normal(m, s, n)) * rng.gamma(rho, 1 / rho, n))
    p = CountPrediction([m], [s], [rho])
    assert p.mean[0] == pytest.approx(y.mean(), rel=0.01)
    assert p.std[0] == pytest.approx(y.std(), rel=0.01)
    lower, upper = p.interval(0.9)
    assert np.mean(y < lower) < 0.05 < np.mean(y <= lower) + 0.002
    assert np.mean(y > upper) < 0.052


def test_counts_stay_finite_far_from_all_data():
    p = CountPrediction([1000.0, -1000.0, 0.0, 5.0], [1.0, 1.0, 60.0, 1000.0], [1.0, 1.0, 1e-9, 1e300])
    for values in (p.mean, p.std, *p.interval(0.99)):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert p.quantile(0.5)[1] == 0


# Proportions


@pytest.mark.parametrize("m", [-4.0, 0.0, 1.0])
@pytest.mark.parametrize("s", [0.0, 0.1, 1.0, 8.0, 60.0])
def test_proportion_std_is_of_the_rate(m, s):
    z = np.linspace(-9, 9, 200_001)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    rate = special.expit(m + s * z)
    mean = rate @ weight
    p = ProportionPrediction([m], [s], [mean])
    assert p.std[0] == pytest.approx(np.sqrt((rate - mean) ** 2 @ weight), rel=1e-8, abs=1e-12)
    assert p.mean[0] == mean


def test_proportion_quantiles_are_those_of_the_latent():
    p = ProportionPrediction([0.5, -3.0], [1.0, 2.0], [0.6, 0.1])
    for q in QS:
        np.testing.assert_allclose(p.quantile(q), special.expit(stats.norm.ppf(q, [0.5, -3.0], [1.0, 2.0])))
    lower, upper = p.interval(0.5)
    np.testing.assert_allclose(special.logit(upper) - special.logit(lower), 2 * stats.norm.ppf(0.75) * p.latent_std)


# Classes


def test_binary_labels_are_the_users():
    p = BinaryPrediction([0.2, 0.5, 0.9], ("no", "yes"), [-1, 0, 2], [1, 1, 1])
    assert p.label.tolist() == ["no", "yes", "yes"]
    np.testing.assert_allclose(p.class_proba, [[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]])
    assert p.latent_mean.dtype == np.float64


@pytest.mark.parametrize(
    ("classes", "kind"), [((0, 1), "i"), ((False, True), "b"), (("a", "b"), "U"), ((0.5, 2), "f"), ((1, "x"), "O")]
)
def test_labels_have_their_own_dtype(classes, kind):
    label = BinaryPrediction([0.9, 0.1], classes, [1, -1], [1, 1]).label
    assert label.dtype.kind == kind
    assert label.tolist() == [classes[1], classes[0]]


def test_multiclass_takes_the_most_probable():
    p = examples()["stage"]
    assert p.label.tolist() == [2, 1]
    assert p.class_proba is p.proba
    assert list(p.columns()) == ["label", "p(1)", "p(2)", "p(3)"]
    assert p.columns()["p(3)"].tolist() == [0.1, 0.3]


# What all have in common


@pytest.mark.parametrize("task", NUMERIC)
def test_columns_of_numbers(task):
    p = examples()[task]
    columns = p.columns()
    assert list(columns) == ["mean", "std", "lower", "upper"]
    assert all(column.shape == (2,) and column.dtype == np.float64 for column in columns.values())
    assert (columns["lower"] <= columns["mean"]).all()
    assert (columns["mean"] <= columns["upper"]).all()
    np.testing.assert_array_equal(columns["upper"], p.quantile(0.975))


@pytest.mark.parametrize("task", NUMERIC)
@pytest.mark.parametrize("wrong", [0, 1, -0.1, 1.5, float("nan"), "a", None])
def test_levels_lie_between_zero_and_one(task, wrong):
    p = examples()[task]
    with pytest.raises(ConfigError) as caught:
        p.interval(wrong)
    assert str(caught.value) == f"level={wrong!r} is not between 0 and 1; choose for example 0.95."
    with pytest.raises(ConfigError, match=r"^q=.* is not between 0 and 1"):
        p.quantile(wrong)


@settings(max_examples=25)
@given(
    st.sampled_from(["pulse", "robust", "visits", "cured"]),
    st.floats(-5, 5),
    st.floats(0, 3),
    st.floats(0.01, 100),
    st.floats(0.01, 0.98),
)
def test_quantiles_rise_and_intervals_are_nested(task, m, s, shape, q):
    p = {
        "pulse": RegressionPrediction([m], [s], [shape]),
        "robust": RobustPrediction([m], [s], [1.0], [max(shape, 0.3)]),
        "visits": CountPrediction([m], [s], [shape]),
        "cured": ProportionPrediction([m], [s], [0.5]),
    }[task]
    assert p.quantile(q) <= p.quantile(q + 0.01)
    (low, high), (lower, upper) = p.interval(0.5), p.interval(0.9)
    assert lower <= low <= high <= upper


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("pulse", "RegressionPrediction(n=2, first: mean=0.3, std=0.5385)"),
        ("robust", "RobustPrediction(n=2, first: mean=0.3, std=0.5745)"),
        ("visits", "CountPrediction(n=2, first: mean=1.53, std=1.788)"),
        ("cured", "ProportionPrediction(n=2, first: mean=0.5744, std=0.116)"),
        ("sick", "BinaryPrediction(n=2, first: label='yes', p=0.8)"),
        ("stage", "MulticlassPrediction(n=2, first: label=2, p=0.7)"),
    ],
)
def test_they_show_themselves_in_a_line(task, text):
    assert repr(examples()[task]) == text
    assert len(examples()[task]) == 2


def test_many_rows_and_none():
    rng = np.random.default_rng(1)
    m, s = rng.normal(size=2500), rng.gamma(2, 0.3, 2500)
    for make in (
        lambda m, s: RobustPrediction(m, s, 1.0, 1.5),
        lambda m, s: CountPrediction(m, s, 2.0),
        lambda m, s: ProportionPrediction(m, s, 0.5),
    ):
        every, some = make(m, s), make(m[::500], s[::500])
        np.testing.assert_allclose(every.std[::500], some.std, rtol=1e-9)
        np.testing.assert_allclose(every.quantile(0.9)[::500], some.quantile(0.9), rtol=1e-9)
        none = make(m[:0], s[:0])
        assert repr(none).endswith("(n=0)")
        assert all(column.shape == (0,) for column in none.columns().values())


def test_what_is_not_known_stays_nan_beside_what_is():
    m = [np.nan, 1.0]
    for p in (RobustPrediction(m, 1.0, 1.0, 3.0), CountPrediction(m, 1.0, 2.0), CountPrediction([1.0, 1.0], m, 2.0)):
        assert np.isnan(p.quantile(0.9)).tolist() == [True, False]


def test_fields_are_float64_copies_with_one_entry_for_each_row():
    mean = np.zeros(3)
    p = RegressionPrediction(mean, torch.ones(3, dtype=torch.float32, requires_grad=True), 2.0)
    mean[:] = 9
    assert p.latent_mean.tolist() == [0.0, 0.0, 0.0]
    assert p.noise_std.tolist() == [2.0, 2.0, 2.0]
    assert {p.latent_mean.dtype, p.latent_std.dtype, p.noise_std.dtype} == {np.dtype(np.float64)}
    with pytest.raises(AttributeError):
        p.latent_mean = mean  # pyright: ignore[reportAttributeAccessIssue]


# The mapping of all tasks


def test_predictions_are_a_mapping_in_order():
    p = Predictions(examples())
    assert list(p) == ["pulse", "robust", "visits", "cured", "sick", "stage"]
    assert len(p) == 6
    assert p["pulse"].mean.tolist() == [0.3, -1.0]
    assert "pulse" in p
    assert "puls" not in p
    assert p.get("puls") is None
    one = Predictions({"pulse": examples()["pulse"]})
    assert repr(one) == "Predictions(pulse: RegressionPrediction(n=2, first: mean=0.3, std=0.5385))"


def test_unknown_tasks_are_key_errors_in_plain_words():
    text = "there is no prediction of task 'puls'; did you mean 'pulse'? known are 'pulse'."
    with pytest.raises(UnknownNameError) as caught:
        Predictions({"pulse": examples()["pulse"]})["puls"]
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value) == text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_to_frame_has_a_column_for_each_number():
    frame = Predictions(examples()).to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == [
        *(f"{task}.{name}" for task in NUMERIC for name in ("mean", "std", "lower", "upper")),
        *("sick.label", "sick.p(no)", "sick.p(yes)"),
        *("stage.label", "stage.p(1)", "stage.p(2)", "stage.p(3)"),
    ]
    assert frame["sick.label"].tolist() == ["yes", "no"]
    np.testing.assert_allclose(frame["sick.p(no)"], [0.2, 0.9])
    np.testing.assert_allclose(frame["pulse.mean"], [0.3, -1.0])


def test_neither_predictions_nor_data_wait_for_torch_or_pandas():
    code = "import sys, polyfed.predictions, polyfed.data; print(sorted({'torch', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
