"""Deviances: against scikit-learn, scipy's likelihoods and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import mean_poisson_deviance

from polyfed.errors import DataError
from polyfed.metrics import binomial_deviance, poisson_deviance


def test_poisson_deviance_is_scikit_learns():
    rng = np.random.default_rng(0)
    mean = rng.gamma(2, 2, 50)
    y = rng.poisson(mean)
    assert (y == 0).any()
    assert poisson_deviance(mean, y) == pytest.approx(mean_poisson_deviance(y, mean), rel=1e-12)


def test_by_hand():
    assert poisson_deviance([3.0], [0]) == pytest.approx(6.0)
    assert poisson_deviance([1.0], [2]) == pytest.approx(2 * (2 * np.log(2) - 1))
    # 1 of 4 at 1/2: 2 (1 log(1/2) + 3 log(3/2))
    assert binomial_deviance([0.5], [1], [4]) == pytest.approx(2 * (np.log(0.5) + 3 * np.log(1.5)))


def test_binomial_deviance_is_twice_the_likelihood_that_is_missing():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 20, 50)
    k, rate = rng.binomial(n, 0.3), rng.uniform(0.05, 0.95, 50)
    missing = stats.binom.logpmf(k, n, k / n) - stats.binom.logpmf(k, n, rate)
    assert binomial_deviance(rate, k, n) == pytest.approx(2 * missing.mean(), rel=1e-10)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=20), st.randoms())
def test_perfection_is_zero_and_order_does_not_matter(rows, random):
    k, rest = np.array(rows).T
    n = k + rest
    assert poisson_deviance(k, k) == pytest.approx(0, abs=1e-12)
    assert binomial_deviance(k / n, k, n) == pytest.approx(0, abs=1e-10)
    order = list(range(len(k)))
    random.shuffle(order)
    assert binomial_deviance(np.full(len(k), 0.3), k[order], n[order]) == pytest.approx(
        binomial_deviance(np.full(len(k), 0.3), k, n), abs=1e-9
    )


def test_impossible_rates_are_very_wrong_and_finite():
    assert 1000 < poisson_deviance([0.0], [1]) < np.inf
    assert 1000 < binomial_deviance([1.0], [0], [3]) < np.inf


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: poisson_deviance([1.0], [1, 2]), "there are 1 of mean but 2 of y; give one of each for every row."),
        (lambda: poisson_deviance([1.0], [-1]), "row 0: y is -1; give counts from 0 up."),
        (lambda: poisson_deviance([-2.0], [1]), "row 0: mean is -2; give the expected counts, which are positive."),
        (lambda: binomial_deviance([1.5], [1], [2]), "row 0: rate is 1.5; give a probability."),
        (
            lambda: binomial_deviance([0.5], [3], [2]),
            "row 0: successes is 3; give from 0 up to the number of trials.",
        ),
        (
            lambda: binomial_deviance([0.5], [3, 1], [2]),
            "there are 1 of rate but 2 of successes; give one of each for every row.",
        ),
    ],
)
def test_wrong_arguments_are_named(call, text):
    with pytest.raises(DataError) as caught:
        call()
    assert str(caught.value) == text
