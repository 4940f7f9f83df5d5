"""Metrics of numbers: against scikit-learn and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as oracle

from polyfed.errors import DataError
from polyfed.metrics import coverage, mae, mse, nlpd, rmse, width

MEAN, Y = np.random.default_rng(0).normal(size=(2, 50))


def test_errors_are_scikit_learns():
    assert mse(MEAN, Y) == pytest.approx(oracle.mean_squared_error(Y, MEAN), rel=1e-14)
    assert rmse(MEAN, Y) == pytest.approx(oracle.root_mean_squared_error(Y, MEAN), rel=1e-14)
    assert mae(MEAN, Y) == pytest.approx(oracle.mean_absolute_error(Y, MEAN), rel=1e-14)


def test_by_hand():
    assert mse([1, 2, 3], [1, 4, 0]) == pytest.approx(13 / 3)  # 0 + 4 + 9
    assert mae([1, 2, 3], [1, 4, 0]) == pytest.approx(5 / 3)
    assert nlpd([-1.0, -3.0]) == 2.0
    assert width([0, 1], [2, 5]) == 3.0


def test_an_interval_holds_its_ends():
    assert coverage(lower=[0, 0, 0, 0], upper=[1, 1, 1, 1], y=[0, 1, 1.001, -0.001]) == 0.5


@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 2), min_size=1, max_size=20), st.randoms())
def test_order_does_not_matter_and_perfection_is_zero(rows, random):
    mean, y = np.array(rows).T
    order = list(range(len(y)))
    random.shuffle(order)
    for metric in (mse, rmse, mae):
        assert metric(mean[order], y[order]) == pytest.approx(metric(mean, y), rel=1e-12)
        assert metric(y, y) == 0


def test_a_prediction_that_is_not_known_is_no_error_but_nan():
    assert np.isnan(mse([np.nan, 1.0], [1.0, 1.0]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: mse([1, 2], [1]), "there are 2 of mean but 1 of y; give one of each for every row."),
        (lambda: mae([[1, 2]], [1]), "mean has shape (1, 2); give one column."),
        (lambda: width([1], [1, 2]), "there are 1 of lower but 2 of upper; give one of each for every row."),
        (lambda: coverage([1, 2], [1, 2], [1]), "there are 2 of lower but 1 of y; give one of each for every row."),
        (lambda: nlpd([]), "log_density is empty; give at least one row."),
        (lambda: rmse([1.0], ["a"]), "y does not hold numbers alone; give a column of numbers."),
        (lambda: mse([1, 2], [1, np.nan]), "row 1: y is nan; leave out the rows without a label."),
    ],
)
def test_wrong_arguments_are_named(call, text):
    with pytest.raises(DataError) as caught:
        call()
    assert str(caught.value) == text
