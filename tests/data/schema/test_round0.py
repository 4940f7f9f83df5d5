"""Round 0: what a client tells, what the server makes of it, and how rows are encoded with the result."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from polyfed.data import ClientSummary, Encoder, Schema, Task, agree, as_tasks, describe
from polyfed.data.features.raw import read_features
from polyfed.data.raw import read_client
from polyfed.data.schema.limits import OTHER
from polyfed.data.splits import Division
from polyfed.errors import DataError

NAN = float("nan")
TASKS = as_tasks({"pulse": "regression", "visits": "count", "sick": "binary", "stage": "multiclass"})
NONE = np.array([], dtype=np.int64)


def summary(columns, labels=None, train=None, tasks=TASKS, **options):
    X = pd.DataFrame(columns)
    raw = read_client("a", (X, labels or {"pulse": np.zeros(len(X))}), tasks)
    train = np.arange(len(X)) if train is None else np.array(train)
    rest = np.setdiff1d(np.arange(len(X)), train)
    return describe(tasks, raw, Division(train, NONE, rest), **options)


def rejection(summaries, tasks=TASKS[:1]):
    with pytest.raises(DataError) as caught:
        agree(tasks, summaries)
    return str(caught.value)


# What a client tells


def test_a_description_by_hand():
    reported = summary(
        {"age": [10.0, 30.0, 99.0], "sex": ["m", None, "f"], "gap": [None] * 3},
        {"pulse": [60, 80, 1000], "visits": [4, None, 9], "stage": ["b", "b", "a"]},
        train=[0, 1],
    )
    assert reported.to_dict() == {
        "columns": ["age", "sex", "gap"],
        "kinds": ["number", "text", "empty"],
        "gaps": [False, True, True],
        "categories": {"sex": ["m"]},
        "classes": {"stage": ["b"]},  # the one of the test row is nobody's business
        "labels": {"pulse": 2, "visits": 1, "stage": 2},
        "moments": {"count": [2, 0], "mean": [20.0, 0.0], "std": [10.0, 0.0]},
        "targets": {
            "pulse": {"count": [2], "mean": [70.0], "std": [10.0]},
            "visits": {"count": [1], "mean": [4.0], "std": [0.0]},
        },
        "ranks": {},
    }


@pytest.mark.parametrize("scaling", ["local", "none"])
def test_nothing_numeric_is_told_of_what_is_not_scaled_together(scaling):
    reported = summary({"age": [10.0, 30.0]}, {"pulse": [60, 80]}, scaling=scaling).to_dict()
    assert reported["moments"] is None
    assert reported["targets"] == {}


def test_of_features_that_stay_as_they_are_nothing_is_told():
    reported = summary({"age": [10.0, 30.0]}, {"pulse": [60, 80]}, scaling="targets").to_dict()
    assert reported["moments"] is None
    assert reported["targets"] == {"pulse": {"count": [2], "mean": [70.0], "std": [10.0]}}


def test_given_classes_are_not_told():
    task = Task("sick", "binary", classes=("no", "yes"))
    assert summary({"age": [1.0]}, {"sick": ["no"]}, tasks=[task]).classes == {}


def test_a_description_travels_as_json():
    reported = summary({"age": [0.1, 0.7], "sex": ["é", None]}, {"pulse": [1, 2], "stage": [1, "x"]})
    text = json.dumps(reported.to_dict())
    again = ClientSummary.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert reported.n_bytes == len(text.replace(", ", ",").replace(": ", ":").encode())


# What the server makes of it


ROUNDED = st.floats(-1e3, 1e3).map(lambda value: round(value, 4))


def out_of_reach(clients):
    """Whether one of three or more reaches over nine times as far from the middle as is usual: by hand, one by one."""
    values = [v for v in ([x for x in rows if not np.isnan(x)] for rows in clients) if v]
    means = sorted(np.mean(v) for v in values)
    if len(means) < 3:
        return False
    middle = means[(len(means) - 1) // 2]
    reach = sorted(r for r in (np.sqrt(np.mean((np.array(v) - middle) ** 2)) for v in values) if r > 0)
    return bool(reach) and reach[-1] > 9 * reach[(len(reach) - 1) // 2]


@given(
    clients=st.lists(
        st.lists(st.tuples(st.one_of(st.just(NAN), ROUNDED), ROUNDED), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    data=st.data(),
)
def test_several_clients_agree_on_what_one_with_all_rows_would_have(clients, data):
    def reported(rows):
        return summary({"age": [row[0] for row in rows]}, {"pulse": [row[1] for row in rows]})

    summaries = {f"client {i}": reported(rows) for i, rows in enumerate(clients)}
    everyone = np.array([row for rows in clients for row in rows])
    assume(not any(out_of_reach([[row[k] for row in rows] for rows in clients]) for k in (0, 1)))
    agreed = agree(TASKS[:1], summaries)
    ages = everyone[:, 0][~np.isnan(everyone[:, 0])]
    # A std of rounding errors is none; whether it is taken for one may differ when it is that close.
    for values, mean, scale in [
        (ages, agreed.scaler.mean[0], agreed.scaler.scale[0]),
        (everyone[:, 1], agreed.codecs["pulse"].shift, agreed.codecs["pulse"].scale),
    ]:
        assert mean == pytest.approx(values.mean() if len(values) else 0.0, rel=1e-9, abs=1e-9)
        if len(values) and values.std() > 1e-9:
            assert scale == pytest.approx(values.std(), rel=1e-6)
    assert agreed.columns[0].gaps == bool(np.isnan(everyone[:, 0]).any())


def test_columns_in_any_order_and_categories_of_all():
    agreed = agree(
        TASKS[:1],
        {
            "b": summary({"sex": ["m"], "age": [40.0], "day": ["mon"]}),
            "a": summary({"age": [20.0], "day": [None], "sex": ["f"]}),
        },
    )
    assert [column.name for column in agreed.columns] == ["age", "day", "sex"]  # as client a has them
    assert [column.kind for column in agreed.columns] == ["number", "text", "text"]
    assert [column.categories for column in agreed.columns] == [(), ("mon",), ("f", "m")]
    assert [column.gaps for column in agreed.columns] == [False, True, False]
    assert (agreed.scaler.mean.tolist(), agreed.scaler.scale.tolist()) == ([30.0], [10.0])


def test_moments_follow_their_columns():
    summaries = {"a": summary({"age": [20.0], "weight": [70.0]}), "b": summary({"weight": [90.0], "age": [40.0]})}
    agreed = agree(TASKS[:1], summaries)
    assert (agreed.scaler.mean.tolist(), agreed.scaler.scale.tolist()) == ([30.0, 80.0], [10.0, 10.0])


@pytest.mark.parametrize(
    ("one", "two", "classes"),
    [
        (["no"], ["yes"], ("no", "yes")),
        ([0, 1], [1.0, None], (0, 1)),
        ([False, True], [0, 1], (0, 1)),
        ([True], [True], (False, True)),
        ([-1], [-1], (-1, 1)),
    ],
)
def test_binary_classes_of_all_clients(one, two, classes):
    summaries = {
        "a": summary({"age": [1.0] * len(one)}, {"sick": one}),
        "b": summary({"age": [1.0] * len(two)}, {"sick": two}),
    }
    for each in (summaries, {"a": summaries["b"], "b": summaries["a"]}):
        found = agree(TASKS[2:3], each).tasks[0].classes
        assert [(type(label), label) for label in found] == [(type(label), label) for label in classes]


def test_a_third_class_is_traced_to_its_client():
    summaries = {
        name: summary({"age": [1.0]}, {"sick": [label]})
        for name, label in zip("abc", ["no", "yes", "maybe"], strict=True)
    }
    assert rejection(summaries, TASKS[2:3]) == (
        "client 'c', task 'sick': label 'maybe' is a third class after 'no' and 'yes' of other clients; "
        "declare the task multiclass or correct the label."
    )


def test_classes_that_cannot_be_known():
    only = {"a": summary({"age": [1.0]}, {"sick": ["yes"], "stage": ["b"]})}
    assert rejection(only, TASKS[2:3]) == (
        "task 'sick': all labels are 'yes', so the other class is unknown; "
        "leave the task out, or give it classes=(negative, positive)."
    )
    assert rejection(only, TASKS[3:]) == (
        "task 'stage': the only label is 'b', so the classes are unknown; "
        "leave the task out, or give it classes=(...) with all of them."
    )


SAME = "give all clients the same columns, empty where values are unknown (those of arrays are x0, x1, ...)."


def test_columns_that_do_not_match():
    assert rejection({"a": summary({"age": [1.0], "sex": ["m"]}), "b": summary({"age": [1.0]})}) == (
        f"client 'b': lacks column 'sex', which client 'a' has; {SAME}"
    )
    assert rejection({"a": summary({"age": [1.0]}), "b": summary({"age": [1.0], "sex": ["m"]})}) == (
        f"client 'a': lacks column 'sex', which client 'b' has; {SAME}"
    )
    assert rejection({"a": summary({"age": ["old"]}), "b": summary({"age": [3.0]})}) == (
        "client 'b': column 'age' holds numbers here but text at client 'a'; "
        "make it text or numbers everywhere, or drop it."
    )


def test_too_many_categories():
    (column,) = agree(TASKS[:1], {"a": summary({"id": [f"p{i}" for i in range(100)]})}).columns
    assert len(column.categories) == 100
    summaries = {"a": summary({"id": [f"p{i}" for i in range(60)]}), "b": summary({"id": [f"q{i}" for i in range(41)]})}
    (column,) = agree(TASKS[:1], summaries).columns
    assert len(column.categories) == 101  # one of them is for all others
    assert OTHER in column.categories


def test_text_that_no_training_row_has_gives_no_column():
    summaries = {"a": summary({"age": [1.0, 2.0], "sex": [None, "m"]}, train=[0])}
    assert Encoder.of(agree(TASKS[:1], summaries)).names == ("age", "sex is missing")
    nothing = summary({"sex": [None, None, "m"]}, train=[0, 1])
    assert Encoder.of(agree(TASKS[:1], {"a": nothing})).names == ("sex is missing",)


def test_an_agreement_travels_as_json():
    agreed = agree(
        TASKS,
        {"a": summary({"age": [0.1, 0.7], "sex": ["m", None]}, {"pulse": [1, 2], "sick": [0, 1], "stage": ["u", 3]})},
    )
    again = Schema.from_dict(json.loads(json.dumps(agreed.to_dict())))
    assert again.columns == agreed.columns
    assert again.codecs == agreed.codecs
    assert again.scaler.mean.tobytes() == agreed.scaler.mean.tobytes()
    assert again.scaler.scale.tobytes() == agreed.scaler.scale.tobytes()


# Encoding


def encode(agreed, columns):
    return Encoder.of(agreed).encode(read_features(pd.DataFrame(columns), where="X"), where="X")


@pytest.fixture
def agreed():
    return agree(
        TASKS[:1], {"a": summary({"age": [20.0, 40.0, NAN], "sex": ["m", "f", None], "ill": [True, False, True]})}
    )


def test_names_and_values(agreed):
    assert Encoder.of(agreed).names == ("age", "age is missing", "sex=f", "sex=m", "sex is missing", "ill")
    x = encode(agreed, {"ill": [True, False], "sex": ["x", None], "age": [50.0, None], "more": [0, 0]})
    ill = np.sqrt(2) / 3  # mean 2/3, standard deviation √2 / 3
    np.testing.assert_allclose(x, [[2, 0, 0, 0, 0, 1 / 3 / ill], [0, 1, 0, 0, 1, -2 / 3 / ill]])
    assert x.flags["C_CONTIGUOUS"]


def test_a_column_without_any_value_is_missing(agreed):
    assert encode(agreed, {"age": [None], "sex": [None], "ill": [None]}).tolist() == [[0, 1, 0, 0, 1, 0]]
    first = agree(TASKS[:1], {"a": summary({"sex": ["m", "f"], "age": [20.0, 40.0]})})
    assert encode(first, {"sex": [None], "age": [50.0]}).tolist() == [[0, 0, 2]]
    assert encode(agreed, {"age": [], "sex": [], "ill": []}).shape == (0, 6)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"age": [1.0], "ill": [1.0]}, "X: lacks column 'sex'; add it, empty where it is unknown."),
        (
            {"age": ["old"], "sex": ["m"], "ill": [1.0]},
            "X: column 'age' holds text such as 'old', but numbers were agreed; give numbers, or leave it empty.",
        ),
        (
            {"age": [1.0], "sex": [2.0], "ill": [1.0]},
            "X: column 'sex' holds numbers such as 2, but text was agreed; give text, or leave it empty.",
        ),
    ],
)
def test_rows_that_cannot_be_encoded(agreed, columns, text):
    with pytest.raises(DataError) as caught:
        encode(agreed, columns)
    assert str(caught.value) == text
