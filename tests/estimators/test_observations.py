"""Features of an estimator are read as those of a client are: both allow the same, and reject the same in the same words."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import polyfed as pf
from polyfed.data import Split

INPUTS = {
    "array": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]),
    "integers": np.arange(6, dtype=np.uint8).reshape(3, 2),
    "lists": [[1, 2], [3, 4], [5, 6]],
    "booleans": [[True], [False], [True]],
    "tensor": torch.arange(6.0).reshape(3, 2),
    "table": pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 0.1, 0.2]}),
    "nullable": pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": pd.array([True, False, None])}),
    "missing values": [[1.0, np.nan], [2.0, 4.0], [None, 5.0]],
    "nothing but gaps": [[1.0, np.nan], [2.0, np.nan], [5.0, np.nan]],
    "masked": np.ma.array([[1.0], [2.0], [3.0]], mask=[[True], [False], [False]]),
    "text": [[1, "red"], [2, "blue"], [3, None]],
    "categories": pd.DataFrame({"a": pd.Categorical(["x", "y", "x"]), "b": [1, 2, 3]}),
    "dates": pd.DataFrame({"seen": pd.to_datetime(["2020-01-01", "2021-06-01", None])}),
    "written dates": pd.DataFrame({"seen": ["2020-01-01", "2021-06-01", "2022-01-01"]}),
    "dates of Python": pd.DataFrame({"seen": [date(2020, 1, 1), date(2021, 6, 1), date(2022, 1, 1)]}),
    "durations": pd.DataFrame({"lasted": pd.to_timedelta([1, 2, 4], unit="D")}),
    "infinite": [[1.0], [np.inf], [2.0]],
    "one column": np.ones(3),
    "three axes": np.ones((3, 2, 2)),
    "no columns": np.ones((3, 0)),
    "nothing": None,
    "ragged": [[1, 2], [3], [4, 5]],
    "sparse": sparse.eye(3),
    "text among numbers": pd.DataFrame({"a": [1, "two", 3]}, index=["u", "v", "w"]),
    "complex": np.array([[1j], [2j], [3j]]),
    "names twice": pd.DataFrame([[1, 2]] * 3, columns=["a", "a"]),
    "dates in two ways": pd.DataFrame({"seen": ["1/2/2020", "3/4/2020", "5/6/2020"]}),
    "objects": pd.DataFrame({"a": [object()] * 3}),
    "times of day": pd.DataFrame({"a": [pd.Timestamp("2020-01-01 10:00").time()] * 3}),
}
NEW = {
    "the same": lambda X: X,
    "too narrow": lambda X: np.ones((1, 1)),
    "too wide": lambda X: np.ones((1, 9)),
    "other names": lambda X: pd.DataFrame({"z": [1.0]}),
    "text": lambda X: [["green"] * np.shape(X)[1]],
    "infinite": lambda X: [[np.inf] * np.shape(X)[1]],
}
LABELS = {"y": [1.0, 2.0, 4.0]}


def of_client(X, scaling="federated"):
    federation = pf.Federation.from_clients(
        {"a": (X, LABELS)}, {"y": "regression"}, scaling=scaling, split=Split(test=0.0)
    )
    return federation.prepare(seed=0)


def of_estimator(X, scale=True):
    return pf.MultiTaskGP({"y": "regression"}, 1, scale=scale).fit(X, LABELS, learn=False)


def outcome(action, prefix=""):
    """What an action returns, or the sentence with which it is rejected."""
    try:
        return action()
    except pf.DataError as error:
        return str(error).removeprefix(prefix)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", INPUTS)
def test_estimators_and_clients_allow_the_same_features(name, scaled):
    X = INPUTS[name]
    client = outcome(lambda: of_client(X, "federated" if scaled else "none"), "client 'a', ")
    estimator = outcome(lambda: of_estimator(X, scaled))
    if isinstance(client, str):
        assert estimator == client
        return
    assert estimator.encoder.columns == client.agreed.columns
    np.testing.assert_array_equal(estimator.observations.x, client.clients["a"].train.x)


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("name", ["array", "table", "missing values", "text", "categories", "dates"])
@pytest.mark.filterwarnings("ignore:.*a category that training did not know")
def test_estimators_and_clients_encode_new_rows_alike(name, new):
    X = INPUTS[name]
    client, estimator, rows = of_client(X), of_estimator(X), NEW[new](X)
    expected = outcome(lambda: client.encode("a", rows), "client 'a', new rows")
    found = outcome(lambda: estimator.encoder.encode_new(rows, "X"), "X")
    np.testing.assert_array_equal(found, expected)
    if not isinstance(expected, str):
        assert np.isfinite(estimator.predict(rows)["y"].mean).all()


def test_a_category_that_training_did_not_know_is_said():
    with pytest.warns(
        UserWarning, match=r"X: column 'x1': 1 row holds a category that training did not know \('green'\)"
    ):
        of_estimator(INPUTS["text"]).predict([[1, "green"]])


def test_rows_of_tasks_are_in_the_order_of_the_tasks():
    gp = pf.MultiTaskGP({"a": "regression", "b": "regression"}, 1, scale=False)
    gp.fit({"b": ([[1.0]], [1.0]), "a": ([[2.0]], [3.0])}, learn=False)
    assert gp.observations.x.tolist() == [[2.0], [1.0]]
