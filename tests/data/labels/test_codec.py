"""Labels as users have them: every container, every gap, and what is said about those that cannot be used."""

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.data import LabelCodec, Task
from polyfed.data.labels.column import LabelColumn
from polyfed.errors import DataError, UsageError

PULSE, ROBUST = Task("pulse"), Task("pulse", "robust")
SICK, STAGE = Task("sick", "binary"), Task("stage", "multiclass")
CURED, VISITS = Task("cured", "proportion"), Task("visits", "count")
NAN = float("nan")


def rejection(action):
    with pytest.raises(DataError) as caught:
        action()
    return str(caught.value)


def encode(codec, y):
    """The rows that have a label, and those labels as numbers."""
    labels = LabelColumn(replace(codec.task, classes=codec.classes), y).read()
    return labels.at, codec.code(labels)


# Classes


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([0, 1, 1], (0, 1)),
        ([1, -1], (-1, 1)),
        ([True, False], (False, True)),
        ([1.0, NAN, 0.0], (0, 1)),
        ([2, 1], (1, 2)),
        ([0.5, 2.0], (0.5, 2.0)),
        (["yes", None, "no"], ("no", "yes")),
        ([True, 0], (0, 1)),
        ([3, "x"], (3, "x")),
        ([1, 1], (0, 1)),
        ([0.0], (0, 1)),
        ([True], (False, True)),
        ([-1, -1], (-1, 1)),
        ([None, NAN, pd.NA, pd.NaT], (0, 1)),
        ([], (0, 1)),
        (None, (0, 1)),
    ],
)
def test_binary_classes_are_learned_as_they_are_written(y, classes):
    learned = LabelCodec.learn(SICK, y).classes
    assert learned == classes
    assert [type(label) for label in learned or ()] == [type(label) for label in classes]


def test_a_third_class_is_named_with_its_row():
    y = ["no", None, "yes", "no", "maybe"]
    assert rejection(lambda: LabelCodec.learn(SICK, y)) == (
        "task 'sick', row 4: label 'maybe' is a third class after 'no' and 'yes'; "
        "declare the task multiclass or correct the label."
    )


def test_one_word_alone_does_not_tell_the_other():
    assert rejection(lambda: LabelCodec.learn(SICK, [None, "yes"])) == (
        "task 'sick', row 1: all labels are 'yes', so the other class is unknown; "
        "leave the task out, or give it classes=(negative, positive)."
    )
    codec = LabelCodec.learn(Task("sick", "binary", classes=("no", "yes")), [None, "yes"])
    assert encode(codec, [None, "yes"])[1].tolist() == [1.0]


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["b", "a", None, "c"], ("a", "b", "c")),
        ([10, 9, 2.0, NAN], (2, 9, 10)),
        ([1, "b", "a", 0], (0, 1, "a", "b")),
        (np.array([b"x", b"y"]), ("x", "y")),
    ],
)
def test_multiclass_classes_are_sorted(y, classes):
    assert LabelCodec.learn(STAGE, y).classes == classes


@pytest.mark.parametrize(
    ("y", "text"),
    [
        (["a", None], "the only label is 'a', so the classes are unknown"),
        ([], "there are no labels, so the classes are unknown"),
        (None, "there are no labels, so the classes are unknown"),
    ],
)
def test_multiclass_needs_two_classes(y, text):
    expected = f"task 'stage': {text}; leave the task out, or give it classes=(...) with all of them."
    assert rejection(lambda: LabelCodec.learn(STAGE, y)) == expected


def test_declared_classes_keep_their_order():
    codec = LabelCodec.learn(Task("stage", "multiclass", classes=("low", "mid", "high")), ["mid"])
    assert encode(codec, ["high", "low", None, "mid"])[1].tolist() == [2.0, 0.0, 1.0]
    assert codec.decode_labels([2, 0]).tolist() == ["high", "low"]


@pytest.mark.parametrize(
    ("y", "label", "text"),
    [
        (["yes", "no"], "yess", "label 'yess' is not one of the classes; did you mean 'yes'? known are 'no', 'yes'."),
        ([0, 1], "1", "label '1' is not one of the classes; known are 0, 1."),
        ([0, 1], 2, "label 2 is not one of the classes; known are 0, 1."),
    ],
)
def test_unknown_labels_are_named(y, label, text):
    codec = LabelCodec.learn(SICK, y)
    assert rejection(lambda: encode(codec, [None, label])) == f"task 'sick', row 1: {text}"


@pytest.mark.parametrize("value", [datetime(2024, 1, 1), (1, 2, 3), Decimal(1), 1j, float("inf")])
def test_labels_are_text_numbers_or_booleans(value):
    column = np.empty(2, dtype=object)
    column[:] = ["a", value]
    assert "task 'stage', row 1: label" in rejection(lambda: LabelCodec.learn(STAGE, column))


# Containers


BINARY_COLUMNS = {
    "list": [1, None, 0],
    "tuple": (True, None, False),
    "floats": np.array([1.0, NAN, 0.0]),
    "float16": np.array([1.0, NAN, 0.0], dtype=np.float16),
    "objects": np.array([1, None, 0], dtype=object),
    "a column": np.array([[1.0], [NAN], [0.0]]),
    "a list of rows": [[1], [None], [0]],
    "masked": np.ma.array([1, 7, 0], mask=[False, True, False]),
    "Series": pd.Series([1.0, NAN, 0.0]),
    "Int64": pd.Series([1, None, 0], dtype="Int64"),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    "categories": pd.Series([1, None, 0], dtype="category"),
    "DataFrame": pd.DataFrame({"sick": pd.array([1, None, 0], dtype="Int64")}),
    "Series with labels": pd.Series([1.0, NAN, 0.0], index=["p", "q", "r"]),
    "tensor": torch.tensor([1.0, NAN, 0.0], requires_grad=True),
    "bfloat16": torch.tensor([1.0, NAN, 0.0], dtype=torch.bfloat16),
    "tensor column": torch.tensor([[1.0], [NAN], [0.0]]),
    "list of tensors": [torch.tensor(1), None, torch.tensor(0)],
    "generator": (label for label in [1, None, 0]),
}


@pytest.mark.parametrize("y", BINARY_COLUMNS.values(), ids=BINARY_COLUMNS.keys())
def test_any_column_with_a_gap(y):
    observed, coded = encode(LabelCodec(SICK, (0, 1), 0.0, 1.0), y)
    assert observed.tolist() == [0, 2]
    assert np.issubdtype(observed.dtype, np.integer)
    assert coded.tolist() == [1.0, -1.0]
    assert coded.dtype == np.float64


@pytest.mark.parametrize(
    "y",
    [
        ["b", None, "a"],
        np.array(["b", None, "a"], dtype=object),
        pd.Series(["b", None, "a"]),
        pd.Series(["b", None, "a"], dtype="string"),
        pd.Series(["b", None, "a"], dtype="category"),
        pd.Categorical(["b", None, "a"]),
    ],
)
def test_any_column_of_words(y):
    codec = LabelCodec.learn(STAGE, y)
    assert codec.classes == ("a", "b")
    observed, coded = encode(codec, y)
    assert (observed.tolist(), coded.tolist()) == ([0, 2], [1.0, 0.0])


TEXT_DTYPES = ["U3", "S3", object]
if hasattr(np.dtypes, "StringDType"):  # numpy 2
    TEXT_DTYPES.append(np.dtypes.StringDType())


@pytest.mark.parametrize("dtype", TEXT_DTYPES)
def test_any_dtype_of_text(dtype):
    y = np.array(["yes", "no"], dtype=dtype) if dtype != "S3" else np.array([b"yes", b"no"])
    codec = LabelCodec.learn(SICK, y)
    assert codec.classes == ("no", "yes")
    assert encode(codec, y)[1].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float32", "float64", "bool"])
def test_any_dtype_of_numbers(dtype):
    y = np.array([0, 1, 1, 0], dtype=dtype)
    for task in (SICK, STAGE, PULSE, VISITS):
        codec = LabelCodec.learn(task, y)
        observed, coded = encode(codec, y)
        assert observed.tolist() == [0, 1, 2, 3]
        assert coded.dtype == np.float64
    assert LabelCodec.learn(SICK, y).classes == ((False, True) if dtype == "bool" else (0, 1))


@pytest.mark.parametrize(
    ("task", "y", "text"),
    [
        (PULSE, np.ones((2, 3)), "labels have shape (2, 3); give one label for each row."),
        (SICK, torch.ones(2, 2), "labels have shape (2, 2); give one label for each row."),
        (PULSE, np.array(3.0), "labels have shape (); give one label for each row."),
        (PULSE, "abc", "labels are a str, not a column; give one label for each row."),
        (PULSE, 5.0, "labels are a float, not a column; give one label for each row."),
        (PULSE, {"a": 1}, "labels are a dict, not a column; give one label for each row."),
        (
            CURED,
            np.ones((2, 3)),
            "labels have shape (2, 3); give two columns, successes and trials, as in [[3, 10], [0, 4]].",
        ),
    ],
)
def test_wrong_shapes(task, y, text):
    codec = LabelCodec(task, (0, 1) if task is SICK else None, 0.0, 1.0)
    assert rejection(lambda: encode(codec, y)) == f"task {task.name!r}: {text}"


# Targets


@pytest.mark.parametrize("task", [PULSE, ROBUST])
def test_targets_are_standardised_over_what_is_there(task):
    codec = LabelCodec.learn(task, [1.0, None, 5.0, NAN])
    assert (codec.shift, codec.scale, codec.classes) == (3.0, 2.0, None)
    observed, coded = encode(codec, [7.0, NAN, 3.0])
    assert (observed.tolist(), coded.tolist()) == ([0, 2], [2.0, 0.0])


@pytest.mark.parametrize(
    ("y", "shift"), [([4.0], 4.0), ([0.1] * 10, 0.1), ([1e9, 1e9], 1e9), ([0.0, 0.0], 0.0), ([], 0.0), (None, 0.0)]
)
def test_constant_targets_keep_scale_one(y, shift):
    codec = LabelCodec.learn(PULSE, y)
    assert codec.shift == pytest.approx(shift)
    assert codec.scale == 1.0


@pytest.mark.parametrize("unit", [1e-200, 1e-9, 1.0, 1e9, 1e200, 1e308])
def test_targets_of_any_unit(unit):
    y = unit * np.array([-1.0, 1.0, 0.5, -0.5])
    coded = encode(LabelCodec.learn(PULSE, y), y)[1]
    np.testing.assert_allclose(coded, np.array([-1, 1, 0.5, -0.5]) / np.sqrt(0.625), rtol=1e-12)


def test_scaling_can_be_left_out():
    for task in (PULSE, ROBUST, VISITS):
        codec = LabelCodec.learn(task, [3, 5], scale=False)
        assert (codec.shift, codec.scale) == (0.0, 1.0)


def test_counts_have_their_mean_as_unit_and_stay_counts():
    codec = LabelCodec.learn(VISITS, [1, None, 5])
    assert (codec.shift, codec.scale) == (0.0, 3.0)
    assert encode(codec, [4, 0.0, None])[1].tolist() == [4.0, 0.0]
    for nothing in ([0, 0], [], None, [NAN]):
        assert LabelCodec.learn(VISITS, nothing).scale == 1.0


@pytest.mark.parametrize(
    ("task", "y", "text"),
    [
        (PULSE, [1.0, "abc"], "row 1: label 'abc' is not a number; correct it or drop the row."),
        (PULSE, np.array([1.0, "abc"]), "row 1: label 'abc' is not a number; correct it or drop the row."),
        (PULSE, ["1", "2"], "row 0: label '1' is not a number; correct it or drop the row."),
        (PULSE, [None, np.inf], "row 1: label inf is not finite; correct it or mark it missing with NaN."),
        (PULSE, [10**400], "row 0: label inf is not finite; correct it or mark it missing with NaN."),
        (PULSE, [[1, 2], [3]], "row 0: label [1, 2] is not a number; correct it or drop the row."),
        (
            PULSE,
            pd.Series([1.0, -np.inf], index=["anna", "bert"]),
            "row 1 (index 'bert'): label -inf is not finite; correct it or mark it missing with NaN.",
        ),
        (PULSE, pd.Series([1.0, np.inf]), "row 1: label inf is not finite; correct it or mark it missing with NaN."),
        (
            VISITS,
            pd.Series([1.0, 2.5], index=[10, 20]),
            "row 1 (index 20): count 2.5 is not a whole number from 0 up; correct it or declare the task regression.",
        ),
        (
            VISITS,
            [0, -1],
            "row 1: count -1 is not a whole number from 0 up; correct it or declare the task regression.",
        ),
        (CURED, [(1, 2), (3, 2)], "row 1: label (3, 2) has more successes than trials; give (successes, trials)."),
        (CURED, [(0, 0)], "row 0: label (0, 0) has no trials; mark it missing with NaN."),
        (
            CURED,
            [[1, 2], [0.5, 2]],
            "row 1: label (0.5, 2) is not made of whole numbers from 0 up; give (successes, trials).",
        ),
        (
            CURED,
            [[-1, 2]],
            "row 0: label (-1, 2) is not made of whole numbers from 0 up; give (successes, trials).",
        ),
        (CURED, [3, 5], "row 0: label 3 is not a pair; give (successes, trials) as in (3, 10)."),
        (CURED, [(1, 2), (1,)], "row 1: label (1,) is not a pair; give (successes, trials) as in (3, 10)."),
        (CURED, [(1, "x")], "row 0: label 'x' is not a number; correct it or drop the row."),
        (CURED, [(1, 2), None, (1, np.inf)], "row 2: label inf is not finite; correct it or mark it missing with NaN."),
    ],
)
def test_targets_that_cannot_be_used(task, y, text):
    codec = LabelCodec(task, None, 0.0, 1.0)
    assert rejection(lambda: encode(codec, y)) == f"task {task.name!r}, {text}"


def test_dates_are_no_targets():
    dates = pd.Series(pd.to_datetime(["2024-01-01", None]))
    assert "row 0: label datetime.datetime(2024, 1, 1, 0, 0) is not a number" in rejection(
        lambda: LabelCodec.learn(PULSE, dates)
    )
    assert encode(LabelCodec.learn(PULSE, dates[1:]), dates[1:])[0].tolist() == []


# Proportions


PAIRS = {
    "list": [(1, 2), None, (3, NAN), (0, 4)],
    "array": np.array([[1, 2], [NAN, 5], [3, NAN], [0, 4]]),
    "DataFrame": pd.DataFrame({"k": [1, NAN, 3, 0], "n": [2, 5, NAN, 4]}),
    "nullable": pd.DataFrame({"k": pd.array([1, None, 3, 0], dtype="Int64"), "n": [2.0, 5.0, NAN, 4.0]}),
    "Series of pairs": pd.Series([(1, 2), None, (None, 3), (0, 4)]),
    "tensor": torch.tensor([[1.0, 2.0], [NAN, 5.0], [3.0, NAN], [0.0, 4.0]]),
}


@pytest.mark.parametrize("y", PAIRS.values(), ids=PAIRS.keys())
def test_pairs_with_gaps(y):
    observed, coded = encode(LabelCodec.learn(CURED, y), y)
    assert observed.tolist() == [0, 3]
    assert coded.tolist() == [[1.0, 2.0], [0.0, 4.0]]
    assert coded.dtype == np.float64


def test_all_or_none_may_succeed():
    assert encode(LabelCodec.learn(CURED, None), [(4, 4), (0, 1)])[1].tolist() == [[4.0, 4.0], [0.0, 1.0]]


@pytest.mark.parametrize("task", [PULSE, SICK, CURED, VISITS])
@pytest.mark.parametrize("y", [None, [], np.array([]), [None, NAN]])
def test_no_label_at_all(task, y):
    observed, coded = encode(LabelCodec.learn(task, y), y)
    assert observed.shape == (0,)
    assert coded.shape == ((0, 2) if task is CURED else (0,))
    assert coded.dtype == np.float64


# There and back


@pytest.mark.parametrize(
    ("classes", "kind"), [(("no", "yes"), "U"), ((0, 1), "i"), ((False, True), "b"), ((0.5, 2), "f"), ((1, "x"), "O")]
)
def test_decoded_labels_have_their_own_dtype(classes, kind):
    decoded = LabelCodec(Task("sick", "binary"), classes, 0.0, 1.0).decode_labels(np.array([1, 0, 1]))
    assert decoded.dtype.kind == kind
    assert decoded.tolist() == [classes[1], classes[0], classes[1]]


def test_only_positions_of_classes_are_decoded():
    codec = LabelCodec.learn(SICK, ["no", "yes"])
    assert codec.decode_labels([-1.0, 1.0]).tolist() == ["no", "yes"]
    stage = LabelCodec.learn(STAGE, ["a", "b", "c"])
    for wrong in ([-1], [3]):
        assert "with 3 classes they are 0 to 2" in rejection(lambda wrong=wrong: stage.decode_labels(wrong))
    with pytest.raises(UsageError, match="task 'pulse': a regression task has no classes"):
        LabelCodec.learn(PULSE, [1.0]).decode_labels([0])


def test_text_that_numpy_would_shorten_comes_back_whole():
    codec = LabelCodec(STAGE, ("", "\x00", "a\x00"), 0.0, 1.0)
    assert codec.decode_labels([0, 1, 2]).tolist() == ["", "\x00", "a\x00"]


labels = st.one_of(
    st.lists(st.integers(-(2**62), 2**62), min_size=2, unique=True),
    st.lists(st.text(max_size=3), min_size=2, unique=True),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, unique=True),
    st.just([True, False]),
)


@given(labels, st.data())
def test_what_is_encoded_comes_back(classes, data):
    y = data.draw(st.lists(st.sampled_from([*classes, None]), max_size=20)) + classes
    y = data.draw(st.permutations(y))
    codec = LabelCodec.learn(STAGE, y)
    codec = LabelCodec.from_dict(json.loads(json.dumps(codec.to_dict())))
    observed, coded = encode(codec, y)
    assert observed.tolist() == [row for row, label in enumerate(y) if label is not None]
    assert sorted(set(coded)) == list(range(len(set(classes))))
    assert codec.decode_labels(coded).tolist() == [y[row] for row in observed]
    assert list(codec.classes or ()) == sorted(set(classes))


@given(st.lists(st.one_of(st.none(), st.floats(-1e300, 1e300)), max_size=20))
def test_standardised_targets_come_back(y):
    codec = LabelCodec.learn(PULSE, y)
    observed, coded = encode(codec, y)
    there = np.array([y[row] for row in observed])
    size = np.abs(there).max(initial=0.0)
    np.testing.assert_allclose(codec.shift + codec.scale * coded, there, rtol=1e-12, atol=1e-12 * size)
    assert np.abs(coded).max(initial=0.0) <= max(np.sqrt(len(there)) * (1 + 1e-9), 1e-12 * size)


@pytest.mark.parametrize(
    ("task", "y"),
    [
        (PULSE, [1.0, 2.5]),
        (Task("pulse", "robust", dof=3.0), [1.0, 2.5]),
        (SICK, [True, False]),
        (Task("stage", "multiclass", classes=("a", 1, 2.5), power="2/K"), ["a"]),
        (CURED, [(1, 2)]),
        (VISITS, [3, 4]),
    ],
)
def test_codecs_survive_json(task, y):
    codec = LabelCodec.learn(task, y)
    back = LabelCodec.from_dict(json.loads(json.dumps(codec.to_dict())))
    assert back == codec
    assert [type(c) for c in back.classes or ()] == [type(c) for c in codec.classes or ()]
