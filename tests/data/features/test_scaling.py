"""Moments of columns: by hand, against the concatenated rows, and where naive sums of squares fail."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from polyfed.data.features.transforms import Moments

NAN = float("nan")
CELLS = st.one_of(st.just(NAN), st.floats(-1e6, 1e6))
CLIENTS = st.lists(
    st.integers(0, 6).flatmap(lambda n: arrays(np.float64, (n, 2), elements=CELLS)), min_size=1, max_size=5
)


def exact(values):
    """Count, mean and variance of one column, in rational arithmetic."""
    numbers = [Fraction(value) for value in values if value == value]
    if not numbers:
        return 0, 0.0, 0.0
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    return len(numbers), float(mean), float(variance)


def test_gaps_are_left_out():
    moments = Moments.of([[1.0, NAN], [NAN, NAN], [5.0, NAN]])
    assert moments.count.tolist() == [2, 0]
    assert moments.mean.tolist() == [3.0, 0.0]
    assert moments.std.tolist() == [2.0, 0.0]


@given(CLIENTS)
def test_pooled_moments_are_those_of_all_rows_together(clients):
    pooled = Moments.pool([Moments.of(client) for client in clients])
    for column, values in enumerate(np.concatenate(clients).T):
        count, mean, variance = exact(values.tolist())
        size = max((abs(value) for value in values if value == value), default=0.0)
        assert pooled.count[column] == count
        assert pooled.mean[column] == pytest.approx(mean, rel=1e-12, abs=1e-12 * size)
        assert pooled.std[column] ** 2 == pytest.approx(variance, rel=1e-9, abs=1e-24 * size**2)


def test_small_spread_around_a_large_mean_does_not_cancel():
    # Sums of squares would leave nothing: (1e9)² has no digit left for 1.
    pooled = Moments.pool([Moments.of([[1e9 - 1]]), Moments.of([[1e9 + 1]])])
    assert pooled.mean.tolist() == [1e9]
    assert pooled.std.tolist() == [1.0]


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_squares_neither_overflow_nor_vanish(size):
    pooled = Moments.pool([Moments.of([[size]]), Moments.of([[3 * size]])])
    assert pooled.mean / size == pytest.approx(2.0)
    assert pooled.std / size == pytest.approx(1.0)


def test_a_constant_column_keeps_scale_1():
    scaler = Moments.pool([Moments.of([[0.1], [0.1], [0.1]]), Moments.of([[0.1]]), Moments.of([[NAN]])]).scaler()
    assert scaler.mean == pytest.approx(0.1)
    assert scaler.scale.tolist() == [1.0]


def test_nothing_at_all_is_scaled_by_nothing():
    scaler = Moments.pool([Moments.of(np.empty((0, 2)))]).scaler()
    assert scaler.mean.tolist() == [0.0, 0.0]
    assert scaler.scale.tolist() == [1.0, 1.0]


@given(CLIENTS)
def test_json_keeps_every_bit(clients):
    moments = Moments.of(clients[0])
    again = Moments.from_dict(json.loads(json.dumps(moments.to_dict())))
    for field in ("count", "mean", "std"):
        assert getattr(again, field).tobytes() == getattr(moments, field).tobytes()
