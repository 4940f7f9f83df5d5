"""Features as users have them: containers, column names, and what is said about entries that cannot be used."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from polyfed.data import FeatureScaler
from polyfed.data.features.raw import read_features
from polyfed.errors import DataError

NAN = float("nan")


def read(X, **options):
    return read_features(X, where="X", **options)


def rejection(*args, **options):
    with pytest.raises(DataError) as caught:
        read(*args, **options)
    return str(caught.value)


MATRICES = {
    "lists": [[1, 2], [3, 4]],
    "tuples": ((1, 2), (3, 4)),
    "floats": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "integers": np.array([[1, 2], [3, 4]], dtype=np.uint8),
    "half": np.array([[1, 2], [3, 4]], dtype=np.float16),
    "Fortran order": np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]),
    "objects": np.array([[1, Decimal(2)], [3.0, np.float32(4)]], dtype=object),
    "tensor": torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
    "bfloat16": torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16),
    "list of tensors": [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])],
    "DataFrame": pd.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}),
    "nullable": pd.DataFrame({"a": pd.array([1, 3], dtype="Int64"), "b": pd.array([2.0, 4.0], dtype="Float32")}),
    "object columns": pd.DataFrame({"a": [1, 3], "b": [2, 4]}, dtype=object),
}


@pytest.mark.parametrize("X", MATRICES.values(), ids=MATRICES.keys())
def test_any_matrix(X):
    features = read(X)
    assert features.numbers.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert features.numbers.dtype == np.float64
    assert features.numbers.flags["C_CONTIGUOUS"]
    assert features.names == (("a", "b") if isinstance(X, pd.DataFrame) else ("x0", "x1"))
    assert features.named == isinstance(X, pd.DataFrame)


def test_booleans_are_zero_and_one():
    frame = pd.DataFrame({"a": [True, False], "b": pd.array([False, True], dtype="boolean")})
    assert read(frame).numbers.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert read([[True, False]]).numbers.tolist() == [[1.0, 0.0]]


def test_the_values_are_a_copy():
    X = np.ones((2, 2))
    values = read(X).numbers
    X[:] = 7
    assert (values == 1).all()


def test_no_rows_are_allowed():
    assert read(np.empty((0, 3))).numbers.shape == (0, 3)
    assert read(pd.DataFrame({"a": pd.Series(dtype=float)})).numbers.shape == (0, 1)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, NAN]],
        [[1, 2], [3, None]],
        [[1, 2], [3, pd.NA]],
        np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [False, True]]),
        pd.DataFrame({"a": [1, 3], "b": pd.array([2, None], dtype="Int64")}, index=[5, 6]),
    ],
)
def test_missing_values_are_nan(X):
    np.testing.assert_array_equal(read(X).numbers, [[1.0, 2.0], [3.0, NAN]])


@pytest.mark.parametrize(
    "X",
    [
        [[1, "Basel"], [2, None]],
        pd.DataFrame({"x0": [1, 2], "x1": ["Basel", None]}),
        pd.DataFrame({"x0": [1, 2], "x1": pd.Categorical(["Basel", None])}),
    ],
)
def test_texts_are_a_column_of_their_own(X):
    features = read(X)
    assert features.numbers.tolist() == [[1.0], [2.0]]
    assert features.texts["x1"].tolist() == ["Basel", None]


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (np.ones(3), "X: has shape (3,), not (rows, columns); if it is one column, use X.reshape(-1, 1)."),
        (pd.Series([1.0]), "X: has shape (1,), not (rows, columns); if it is one column, use X.to_frame()."),
        (
            torch.ones(2, 3, 4),
            "X: has shape (2, 3, 4), not (rows, columns); flatten each example, for example X.reshape(len(X), -1).",
        ),
        (None, "X: has shape (), not (rows, columns); give a table with one row for each example."),
        (np.ones((2, 0)), "X: has no columns; give at least one feature."),
        (pd.DataFrame(index=[0, 1]), "X: has no columns; give at least one feature."),
        ([[1, 2], [3]], "X: has rows of different lengths; give every row the same number of values."),
        (sparse.eye(3), "X: is a sparse matrix; give X.toarray()."),
        (
            [[1, 5], [2, "a"]],
            "X, row 1, column 'x1': value 'a' is not a number as others of the column are; "
            "correct it, mark it missing, or make the whole column text.",
        ),
        (
            np.array([[1.0, 1j]]),
            "X, row 0, column 'x0': value (1+0j) is not a number as others of the column are; "
            "correct it, mark it missing, or make the whole column text.",
        ),
        (
            pd.DataFrame({"age": [1, 2], "city": [4, "Basel"]}, index=["anna", "bert"]),
            "X, row 1 (index 'bert'), column 'city': value 'Basel' is not a number as others of the column are; "
            "correct it, mark it missing, or make the whole column text.",
        ),
        (
            np.array([[1.0, -np.inf]]),
            "X, row 0, column 'x1': value -inf is not finite; correct it or mark it missing with NaN.",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "X: column 'a' appears twice; rename or drop one of them.",
        ),
    ],
)
def test_what_is_rejected_and_how(X, text):
    assert rejection(X) == text


@pytest.mark.parametrize("unit", ["ns", "D"])
def test_dates_and_durations_become_numbers(unit):
    assert read(np.array([["2000-01-03"]], dtype=f"M8[{unit}]")).numbers[0, 0] == 2.0  # days since 2000 began
    assert read(pd.DataFrame({"t": pd.to_datetime(["2000-01-03"])})).numbers[0, 0] == 2.0
    a_day = np.timedelta64(1, "D").astype(f"m8[{unit}]")
    assert read(np.array([[3 * a_day]], dtype=f"m8[{unit}]")).numbers.tolist() == [[3.0]]


def test_tables_are_put_into_the_training_order():
    frame = pd.DataFrame({"note": [object()], "b": [2], "a": [1]})
    features = read(frame, only=("a", "b")).select(("a", "b"), "X")
    assert features.numbers.tolist() == [[1.0, 2.0]]
    assert features.names == ("a", "b")


def test_numbered_columns_have_text_for_names():
    features = read(pd.DataFrame([[1, 2]]))
    assert features.names == ("0", "1")
    again = read(pd.DataFrame([[2, 1]], columns=[1, 0])).select(features.names, "X")
    assert again.numbers.tolist() == [[1.0, 2.0]]


def test_missing_columns_are_named_and_without_names_the_width_is_checked():
    with pytest.raises(DataError) as caught:
        read(pd.DataFrame({"a": [1]})).select(("a", "b", "c"), "X")
    assert str(caught.value) == "X: lacks column 'b', column 'c'; add it, empty where it is unknown."
    assert read(np.ones((1, 5))).select(tuple("abcde"), "X").names == tuple("abcde")
    with pytest.raises(DataError) as caught:
        read(np.ones((1, 3))).select(("a", "b"), "X")
    assert str(caught.value) == "X: has 3 columns, not 2; give the columns 'a', 'b' in this order."


# Scaling


def test_columns_of_any_size_are_standardised():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(200, 5))
    values = base * [1e9, 1e-9, 1.0, 1e200, 1e-200] + [1e12, 0, -3, 0, 0]
    scaled = FeatureScaler.learn(values).apply(values)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-10)
    expected = (base - base.mean(axis=0)) / base.std(axis=0)
    np.testing.assert_allclose(scaled, expected, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-300, 1e300])
def test_constant_columns_keep_scale_one(value):
    scaler = FeatureScaler.learn(np.full((7, 1), value))
    assert scaler.scale.tolist() == [1.0]
    assert scaler.mean[0] == pytest.approx(value, rel=1e-15)


def test_a_column_that_varies_by_rounding_alone_is_constant():
    assert FeatureScaler.learn([[0.3], [0.1 + 0.2]]).scale.tolist() == [1.0]


def test_a_small_spread_around_a_large_mean_is_no_constant():
    scaler = FeatureScaler.learn(np.array([[1e9], [1e9 + 1]]))
    assert scaler.scale[0] == pytest.approx(0.5)


def test_no_rows_and_one_row():
    assert FeatureScaler.learn(np.empty((0, 2))).scale.tolist() == [1.0, 1.0]
    one = FeatureScaler.learn([[3.0, 4.0]])
    assert (one.mean.tolist(), one.scale.tolist()) == ([3.0, 4.0], [1.0, 1.0])


def test_identity_changes_nothing():
    X = np.array([[1.0, -2.0], [0.0, 1e9]])
    assert (FeatureScaler.identity(2).apply(X) == X).all()


def test_nothing_overflows():
    largest = np.finfo(float).max
    values = np.array([[largest], [-largest]])
    scaler = FeatureScaler.learn(values)
    np.testing.assert_allclose(scaler.apply(values), [[1.0], [-1.0]])
    shifted = FeatureScaler(np.array([-largest]), np.array([largest]))
    np.testing.assert_allclose(shifted.apply([[largest]]), [[2.0]])
    far = FeatureScaler.learn([[1e-9], [-1e-9]]).apply([[largest], [-largest]])
    assert np.isfinite(far**2).all()
    assert far[0] > 0 > far[1]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_any_column_becomes_moderate_numbers(column):
    values = np.array(column)[:, None]
    scaler = FeatureScaler.learn(values)
    scaled = scaler.apply(values)
    assert np.isfinite(scaled).all()
    if scaler.scale[0] != 1.0:
        assert np.abs(scaled).max() <= np.sqrt(len(column)) * (1 + 1e-3)
