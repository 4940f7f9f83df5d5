"""Weights of rows and of classes: how they are read, what they become, and what is rejected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, PreparedFederation, Split, Task
from polyfed.errors import ConfigError, DataError

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "ward": ["a", "b", "b"] * (N // 3),
        "age": np.arange(float(N)),
        "w": 1.0 + np.arange(N) % 4,
        "pulse": np.arange(float(N)),
        "sick": np.where(np.arange(N) % 5 == 0, "yes", "no"),
    }
)


def prepared(table=TABLE, *, weights="w", class_weights=None, **options):
    tasks = [Task("pulse"), Task("sick", "binary", class_weights=class_weights)]
    options = {"client": "ward", "tasks": tasks, "weights": weights, "split": Split(test=0.2), **options}
    return Federation.from_table(table, scaling="none", **options).prepare(0)


def rows_of(data, task):
    """The rows of the table that have the labels; ages are their numbers."""
    return data.x[data.labels[task][0], 0].astype(int)


def test_they_are_relative_to_the_mean_of_a_client():
    study = prepared()
    assert study.agreed.columns[0].name == "age"
    assert len(study.agreed.columns) == 1  # a weight is no input
    for parts in study.clients.values():
        for task in ("pulse", "sick"):
            own = TABLE["w"].to_numpy()[rows_of(parts.train, task)]
            assert parts.train.weights[task] == pytest.approx(own / own.mean(), rel=1e-9)
            assert parts.train.weights[task].sum() <= len(own)  # never more than the labels that are declared
        assert not parts.test.weights  # scores count all rows alike


def test_a_row_of_weight_zero_is_not_trained_on():
    table = TABLE.assign(w=np.where(TABLE["age"] < 20, 0.0, 3.0))
    study = prepared(table)
    for parts in study.clients.values():
        assert rows_of(parts.train, "pulse").min() >= 20
        assert not parts.train.weights  # the others count alike
        assert (rows_of(parts.test, "pulse") < 20).any()


def test_balanced_classes_weigh_the_same():
    study = prepared(weights=None, class_weights="balanced")
    for parts in study.clients.values():
        assert set(parts.train.weights) == {"sick"}
        _, y = parts.train.labels["sick"]
        weights = parts.train.weights["sick"]
        assert weights[y > 0].sum() == pytest.approx(weights[y < 0].sum(), rel=1e-9)
        assert weights.mean() == pytest.approx(1.0, rel=1e-9)


def test_weights_of_rows_and_of_classes_are_multiplied():
    for parts in prepared(class_weights={"yes": 5}).clients.values():
        (_, y), rows = parts.train.labels["sick"], rows_of(parts.train, "sick")
        wanted = TABLE["w"].to_numpy()[rows] * np.where(y > 0, 5, 1)
        assert parts.train.weights["sick"] == pytest.approx(wanted / wanted.mean(), rel=1e-9)


def test_a_numeric_class_is_named_as_it_is_written():
    table = TABLE.assign(sick=np.where(TABLE["sick"] == "yes", 1.0, 0.0))
    weights = prepared(table, weights=None, class_weights={"1": 5}).clients["a"].train.weights["sick"]
    assert weights.max() / weights.min() == pytest.approx(5)


def test_a_study_is_stored_with_its_weights():
    study = prepared(class_weights={"yes": 5})
    again = PreparedFederation.from_saved(study.to_dict(), study.arrays())
    for name, parts in study.clients.items():
        for task, weights in parts.train.weights.items():
            assert np.array_equal(again.clients[name].train.weights[task], weights)
    assert again.agreed.codecs["sick"].task.class_weights == (("yes", 5.0),)
    arrays = study.arrays() | {"client/0/train/0/weight": 1e9 * study.arrays()["client/0/train/0/weight"]}
    with pytest.raises(DataError, match="weights of task 'pulse' that are not one, on average, for each label"):
        PreparedFederation.from_saved(study.to_dict(), arrays)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (-1.0, "is '-1.0'"),
        (np.nan, "is empty"),
        (np.inf, "is 'inf'"),
    ],
)
def test_a_weight_that_is_none_is_rejected(bad, text):
    table = TABLE.copy()
    table.loc[7, "w"] = bad
    with pytest.raises(DataError) as reported:
        prepared(table)
    assert str(reported.value) == (
        f"row 7 (client 'b'): column 'w', by which rows are weighted, {text}; give each row a finite number from 0 up."
    )


def test_weights_that_are_all_zero_are_rejected():
    with pytest.raises(DataError, match=r"column 'w', by which rows are weighted, is zero everywhere; give some row"):
        prepared(TABLE.assign(w=0))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("even", "class_weights='even' is not understood; give 'balanced', or as in"),
        ({"yes": -1}, "the weight of class 'yes' is -1, not a positive number"),
        ({"yes": float("nan")}, "the weight of class 'yes' is nan, not a positive number"),
        ({"yse": 2}, "class 'yse' has a weight, and is no class of it; did you mean 'yes'?"),
    ],
)
def test_class_weights_that_are_none_are_rejected(given, text):
    with pytest.raises(ConfigError) as reported:
        prepared(class_weights=given)
    assert "task 'sick'" in str(reported.value)
    assert text in str(reported.value)


def test_numbers_have_no_class_weights():
    with pytest.raises(ConfigError, match="does not belong to a regression task"):
        Task("pulse", class_weights="balanced")
