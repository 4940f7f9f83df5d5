"""A federation as users build it: forms of input, what is said about bad ones, and numbers worked out by hand."""

import re
from datetime import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyfed.data import SCALINGS, Federation, Split, Task
from polyfed.errors import ConfigError, DataError, PolyfedError, UnknownNameError

NAN = float("nan")
TASKS = {"pulse": "regression", "sick": "binary"}
NO_TEST = Split(test=0.0)


def build(clients, tasks=TASKS, **options):
    return Federation.from_clients(clients, tasks, **{"split": NO_TEST, **options})


def rejection(action, kind=DataError):
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


# Forms


def both_forms():
    X, pulse, sick = [[1.0, 2.0], [3.0, 4.0]], [60.0, None], ["no", "yes"]
    return {
        "lists, one X": (X, {"pulse": pulse, "sick": sick}),
        "arrays, one X": (np.array(X), {"pulse": np.array([60.0, NAN]), "sick": np.array(sick)}),
        "tensors": (torch.tensor(X), {"pulse": torch.tensor([60.0, NAN]), "sick": sick}),
        "a table of labels": (X, pd.DataFrame({"pulse": pulse, "sick": sick, "other": [0, 0]})),
        "the same X twice": {"pulse": (X, pulse), "sick": (X, sick)},
        "reversed": {"sick": (X, sick), "pulse": (X, pulse)},
        "frame": (pd.DataFrame(X, columns=["x0", "x1"]), {"pulse": pulse, "sick": sick}),
    }


@pytest.mark.parametrize("form", both_forms())
def test_forms_of_a_client(form):
    data = build({"a": both_forms()[form]}, scaling="none").prepare(0).clients["a"].train
    assert data.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert {task: [part.tolist() for part in seen] for task, seen in data.labels.items()} == {
        "pulse": [[0], [60.0]],
        "sick": [[0, 1], [-1.0, 1.0]],
    }


def test_tasks_with_inputs_of_their_own():
    clients = {"a": {"pulse": ([[1.0], [2.0]], [60.0, 70.0]), "sick": ([[3.0], [4.0], [5.0]], [None, 0, 1])}}
    data = build(clients, scaling="none").prepare(0).clients["a"].train
    assert data.x[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert data.labels["sick"][0].tolist() == [3, 4]


def test_a_client_may_lack_tasks_and_even_labels():
    fed = build({"a": ([[1.0]], {"pulse": [60.0]}), "b": ([[1.0]], {"sick": [1]}), "c": ([[5.0]], {})})
    study = fed.prepare(0)
    assert study.clients["a"].train.counts() == {"pulse": 1, "sick": 0}
    assert list(study.clients["b"].train.labels) == ["sick"]
    assert study.clients["c"].train.n_labels == 0
    assert study.clients["c"].train.x.shape == (1, 1)


def test_face_of_a_federation():
    fed = build({2: ([[1.0]], {"pulse": [60.0]}), 10: ([[1.0], [2.0]], {"sick": [1, 0]})})
    assert fed.names == ("10", "2")
    assert len(fed) == 2
    assert [task.name for task in fed.tasks] == ["pulse", "sick"]
    assert repr(fed) == (
        "Federation of 2 clients and 3 rows; pulse (regression): 1 labels, sick (binary): 2 labels; scaling 'federated'"
    )
    other = fed.with_options(scaling="none", split=Split(test=0.5))
    assert (other.scaling, other.split.test, other.names) == ("none", 0.5, fed.names)
    assert (fed.scaling, fed.split.test) == ("federated", 0.0)


def test_later_changes_to_the_users_arrays_do_not_matter():
    X, y = np.array([[1.0], [2.0]]), np.array([1.0, 2.0])
    fed = build({"a": (X, {"pulse": y})}, {"pulse": "regression"}, scaling="none")
    X[:], y[:] = 99.0, 99.0
    data = fed.prepare(0).clients["a"].train
    assert data.x.tolist() == [[1.0], [2.0]]
    assert data.labels["pulse"][1].tolist() == [1.0, 2.0]


# Scaling, by hand


def hospitals():
    # Ages 10, 20, 60: mean 30, variance (400 + 100 + 900) / 3. Pulses 60, 70, 110: mean 80, the same variance.
    return {"a": ([[10.0], [20.0]], {"pulse": [60, 70]}), "b": ([[60.0], [NAN]], {"pulse": [110, None]})}


def test_federated_scaling():
    study = build(hospitals(), {"pulse": "regression"}).prepare(0)
    deviation = (1400 / 3) ** 0.5
    np.testing.assert_allclose(study.clients["a"].train.x, [[-20 / deviation, 0], [-10 / deviation, 0]])
    np.testing.assert_allclose(study.clients["b"].train.x, [[30 / deviation, 0], [0, 1]])
    np.testing.assert_allclose(study.clients["a"].train.labels["pulse"][1], [-20 / deviation, -10 / deviation])
    codec = study.spec.codecs["pulse"]
    assert (codec.shift, codec.scale) == (pytest.approx(80.0), pytest.approx(deviation))
    assert study.encoders["a"] is study.encoders["b"]
    assert study.encoders["a"].names == ("x0", "x0 is missing")


def test_local_scaling():
    study = build(hospitals(), {"pulse": "regression"}, scaling="local").prepare(0)
    assert study.clients["a"].train.x.tolist() == [[-1.0, 0.0], [1.0, 0.0]]  # mean 15, deviation 5
    assert study.clients["b"].train.x.tolist() == [[0.0, 0.0], [0.0, 1.0]]  # one number: it is the mean
    assert study.clients["a"].train.labels["pulse"][1].tolist() == [-1.0, 1.0]
    own = study.clients["a"].train.codecs["pulse"]
    assert (own.shift, own.scale) == (65.0, 5.0)
    agreed = study.spec.codecs["pulse"]
    assert (agreed.shift, agreed.scale) == (0.0, 1.0)
    assert study.encode("a", [[25.0]]).tolist() == [[2.0, 0.0]]
    assert study.encode("b", [[65.0]]).tolist() == [[5.0, 0.0]]


def test_local_scaling_without_labels_knows_no_unit():
    clients = {"a": ([[1.0], [2.0]], {"pulse": [60, 70]}), "b": ([[1.0], [2.0]], {"sick": [0, 1]})}
    codec = build(clients, scaling="local").prepare(0).clients["b"].train.codecs["pulse"]
    assert (codec.shift, codec.scale) == (0.0, 1.0)


def test_no_scaling():
    study = build(hospitals(), {"pulse": "regression"}, scaling="none").prepare(0)
    assert study.clients["b"].train.x.tolist() == [[60.0, 0.0], [0.0, 1.0]]
    assert study.clients["b"].train.labels["pulse"][1].tolist() == [110.0]


def test_scaling_of_targets_alone():
    study = build(hospitals(), {"pulse": "regression"}, scaling="targets").prepare(0)
    assert study.clients["a"].train.x.tolist() == [[10.0, 0.0], [20.0, 0.0]]
    assert study.clients["b"].train.x.tolist() == [[60.0, 0.0], [0.0, 1.0]]
    assert study.encode("b", [[65.0]]).tolist() == [[65.0, 0.0]]
    deviation = (1400 / 3) ** 0.5  # of 60, 70 and 110, as in federated scaling
    np.testing.assert_allclose(study.clients["b"].train.labels["pulse"][1], [30 / deviation])
    codec = study.clients["a"].train.codecs["pulse"]
    assert (codec.shift, codec.scale) == (pytest.approx(80.0), pytest.approx(deviation))
    assert study.encoders["a"] is study.encoders["b"]


@pytest.mark.parametrize(("scaling", "unit"), [("federated", 4.0), ("local", 2.0), ("targets", 4.0), ("none", 1.0)])
def test_unit_of_counts(scaling, unit):
    clients = {"a": ([[1.0], [2.0]], {"visits": [1, 3]}), "b": ([[1.0]], {"visits": [8]})}
    data = build(clients, {"visits": "count"}, scaling=scaling).prepare(0).clients["a"].train
    assert data.labels["visits"][1].tolist() == [1.0, 3.0]  # counts stay counts
    assert data.codecs["visits"].scale == unit
    assert data.codecs["visits"].shift == 0.0


def test_only_training_rows_are_told():
    X = np.arange(10.0)[:, None]
    study = build({"a": (X, {"pulse": X[:, 0]})}, {"pulse": "regression"}, split=Split(test=0.3)).prepare(5)
    data = study.clients["a"]
    assert data.train.x.mean() == pytest.approx(0.0)
    assert data.train.x.std() == pytest.approx(1.0)
    assert data.train.labels["pulse"][1].std() == pytest.approx(1.0)
    whole = np.concatenate([data.train.x, data.test.x])
    assert abs(whole.std() - 1.0) > 1e-3  # the test rows were not in it


def test_missing_proportions_and_classes():
    tasks = [Task("cured", "proportion"), Task("stage", "multiclass")]
    clients = {"a": ([[0.0], [1.0]], {"cured": [[3, 10], [NAN, NAN]], "stage": ["b", "a"]})}
    data = build(clients, tasks).prepare(0).clients["a"].train
    assert data.labels["cured"][0].tolist() == [0]
    assert data.labels["cured"][1].tolist() == [[3.0, 10.0]]
    assert data.labels["stage"][1].tolist() == [1.0, 0.0]


@settings(max_examples=25)
@given(order=st.permutations(["a", "b", "c", "d"]), scaling=st.sampled_from(SCALINGS))
def test_the_order_of_clients_changes_nothing(order, scaling):
    def some(name):
        rng = np.random.default_rng(ord(name))
        return rng.normal(size=(9, 2)), {"pulse": rng.normal(size=9), "sick": rng.integers(0, 2, 9)}

    options = {"scaling": scaling, "split": Split(test=0.3)}
    one = build({name: some(name) for name in "abcd"}, **options).prepare(3)
    two = build({name: some(name) for name in order}, **options).prepare(3)
    assert one.to_dict() == two.to_dict()
    ours, theirs = one.arrays(), two.arrays()
    assert list(ours) == list(theirs)
    assert all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


def test_leaving_a_client_out_does_not_move_the_rows_of_others():
    clients = {name: (np.arange(20.0)[:, None], {"pulse": np.arange(20.0)}) for name in "abc"}
    options = {"tasks": {"pulse": "regression"}, "scaling": "none", "split": Split(test=0.3)}
    together = build(clients, **options).prepare(1).clients["b"].test.x
    alone = build({"b": clients["b"]}, **options).prepare(1).clients["b"].test.x
    assert together.tolist() == alone.tolist()


# Errors

ONE = ([[1.0]], {"pulse": [60.0]})


@pytest.mark.parametrize(
    ("clients", "text"),
    [
        ({}, "federation: there is no client; give at least one."),
        ([ONE], "clients: are a list; give {name: {task: (X, y)}} or {name: (X, {task: y})}."),
        ({"a": {}}, "client 'a': has no data; give at least one task, or leave the client out."),
        ({"a": 3}, "client 'a': is given as int; give {task: (X, y)} or (X, {task: y})."),
        ({"a": {"pulse": [1.0]}}, "client 'a', task 'pulse': is not a pair; give (X, y)."),
        ({"a": ONE, 1: ONE, "1": ONE}, "clients: client '1' is given twice; give each client a name of its own."),
        (
            {"a": (np.empty((0, 2)), {"pulse": []})},
            "client 'a': has no rows; give at least one, or leave the client out.",
        ),
        (
            {"a": ([[1.0]], {"pulse": [60.0, 70.0]})},
            "client 'a', task 'pulse': 2 labels for 1 rows of features; "
            "give a label for each row, and NaN or None where it is missing.",
        ),
        (
            {"a": ([[1.0], [2.0]], {"pulse": [60.0, "high"]})},
            "client 'a', task 'pulse', row 1: label 'high' is not a number; correct it or drop the row.",
        ),
        (
            {"a": ([[1.0]] * 4, {"sick": ["no", None, "yes", "maybe"]})},
            "client 'a', task 'sick', row 3: label 'maybe' is a third class after 'no' and 'yes'; "
            "declare the task multiclass or correct the label.",
        ),
        (
            {"a": ([[1.0, 2.0], [3.0, float("inf")]], {"pulse": [1, 2]})},
            "client 'a', features of task 'pulse', row 1, column 'x1': value inf is not finite; "
            "correct it or mark it missing with NaN.",
        ),
        (
            {"a": ([[1.0], ["old"]], {"pulse": [1, 2]})},
            "client 'a', features of task 'pulse', row 1, column 'x0': value 'old' is not a number as others of the "
            "column are; correct it, mark it missing, or make the whole column text.",
        ),
        (
            {"a": ([1.0, 2.0], {"pulse": [1, 2]})},
            "client 'a', features of task 'pulse': has shape (2,), not (rows, columns); "
            "if it is one column, use X.reshape(-1, 1).",
        ),
        (
            {"a": (np.empty((2, 0)), {"pulse": [1, 2]})},
            "client 'a', features of task 'pulse': has no columns; give at least one feature.",
        ),
        (
            {"a": {"pulse": ([[1.0]], [1]), "sick": ([[1.0, 2.0]], [1])}},
            "client 'a': has 2 columns, not 1; give the columns 'x0' in this order.",
        ),
        (
            {"a": (pd.DataFrame({"day": [time(12, 30)]}), {"pulse": [1]})},
            "client 'a', features of task 'pulse': column 'day' holds times of day such as '12:30:00'; "
            "turn it into numbers such as hours, or drop it.",
        ),
        (
            {"a": (pd.DataFrame({"day": ["2.1.2024", "31.2.2024"]}), {"pulse": [1, 2]})},
            "client 'a', features of task 'pulse', row 1, column 'day': '31.2.2024' is no date; "
            "correct it as YYYY-MM-DD, leave it empty, or drop the column.",
        ),
        (
            {"a": (pd.DataFrame([[1, 2]], columns=["u", "u"]), {"pulse": [1]})},
            "client 'a', features of task 'pulse': column 'u' appears twice; rename or drop one of them.",
        ),
        ({"a\udcff": ONE}, r"client 'a\udcff' has no name that can be written; rename it."),
        ({"a": ONE}, "task 'sick': no client has a label; give some, or leave the task out."),
    ],
)
def test_clients_that_cannot_be_used(clients, text):
    assert rejection(lambda: build(clients)) == text


def test_rows_of_a_table_are_named_by_its_index():
    X = pd.DataFrame({"age": [1.0, float("inf")]}, index=["anna", "ben"])
    assert rejection(lambda: build({"a": (X, {"pulse": [1, 2]})})) == (
        "client 'a', features of task 'pulse', row 1 (index 'ben'), column 'age': value inf is not finite; "
        "correct it or mark it missing with NaN."
    )


def test_unknown_tasks_options_and_seeds():
    assert rejection(lambda: build({"a": ([[1.0]], {"puls": [1]})}), UnknownNameError) == (
        "client 'a': task 'puls' is unknown; did you mean 'pulse'? known are 'pulse', 'sick'."
    )
    one = {"pulse": "regression"}
    assert rejection(lambda: build({"a": ONE}, one, scaling="federal"), ConfigError) == (
        "scaling 'federal' is not known; did you mean 'federated'? known are 'federated', 'local', 'targets', 'none'."
    )
    assert rejection(lambda: build({"a": ONE}, one, split=0.2), ConfigError) == (
        "split=0.2 is not a split; give for example Split(test=0.2)."
    )
    assert rejection(lambda: build({"a": ONE}, one).prepare(-1), ConfigError) == (
        "seed=-1 is not a seed; give a whole number from 0 up."
    )
    with pytest.raises(ConfigError):
        build({"a": ONE}, one).prepare(0.5)


def test_given_classes_are_checked_at_the_door():
    task = Task("sick", "binary", classes=("no", "yes"))
    assert rejection(lambda: build({"a": ([[1.0], [2.0]], {"sick": ["no", "yse"]})}, [task])) == (
        "client 'a', task 'sick', row 1: label 'yse' is not one of the classes; "
        "did you mean 'yes'? known are 'no', 'yes'."
    )


def test_test_rows_without_a_client():
    assert rejection(lambda: build({"a": ONE}, {"pulse": "regression"}, test={"b": ONE})) == (
        "test: client 'b' has test rows but no others; give it among the clients too."
    )


def test_a_class_that_only_test_rows_have_is_told_to_nobody_and_its_labels_are_counted():
    fed = build(
        {"a": ([[1.0], [2.0]], {"stage": ["a", "b"]})},
        {"stage": "multiclass"},
        test={"a": ([[1.0], [2.0]], {"stage": ["c", "a"]})},
    )
    study = fed.prepare(0)
    assert study.spec.tasks[0].classes == ("a", "b")
    assert [part.tolist() for part in study.clients["a"].test.labels["stage"]] == [[1], [0.0]]
    assert study.round0.unknown == {"a": {"stage": 1}}


@pytest.mark.parametrize(
    ("truth", "text"),
    [
        ({"b": {}}, "truth of client 'b': there is no such client; known are 'a'."),
        (
            {"a": {"pulse": [1.0]}},
            "truth of client 'a': has no matrix 'x' of inputs; give {'x': (points, features), task: f}.",
        ),
        (
            {"a": {"x": [[1.0]], "puls": [1.0]}},
            "truth of client 'a': task 'puls' is unknown; did you mean 'pulse'? known are 'pulse'.",
        ),
        (
            {"a": {"x": [[1.0]], "pulse": [1.0, 2.0]}},
            "truth of client 'a': 'pulse' is not 1 finite numbers; give one for each row of x.",
        ),
        (
            {"a": {"x": [[1.0]], "pulse": [NAN]}},
            "truth of client 'a': 'pulse' is not 1 finite numbers; give one for each row of x.",
        ),
    ],
)
def test_truth_that_cannot_be_used(truth, text):
    assert rejection(lambda: build({"a": ONE}, {"pulse": "regression"}, truth=truth)) == text


WEIRD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.dates(), st.binary(max_size=2)
)


@settings(max_examples=150)
@given(st.lists(st.tuples(WEIRD, WEIRD, WEIRD, WEIRD), min_size=1, max_size=5))
def test_whatever_the_cells_hold_the_outcome_is_numbers_or_one_sentence(rows):
    X = pd.DataFrame([row[:2] for row in rows], columns=["u", "v"], dtype=object)
    labels = {"pulse": [row[2] for row in rows], "sick": [row[3] for row in rows]}
    study, said = None, ""
    try:
        study = build({"a": (X, labels)}).prepare(0)
    except PolyfedError as error:
        said = str(error)
    if study is None:
        assert re.fullmatch(r".+; .+\.", said, re.DOTALL)
        return
    data = study.clients["a"].train
    assert np.isfinite(data.x).all()
    assert all(np.isfinite(y).all() for _, y in data.labels.values())
