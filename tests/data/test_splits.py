"""Which row goes where: partitions, strata, few shots, and independence of everything but seed and name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfed.data import Federation, Split, as_tasks
from polyfed.data.raw import read_client
from polyfed.data.splits import divide
from polyfed.errors import ConfigError, DataError

TASKS = as_tasks({"pulse": "regression", "sick": "binary", "stage": "multiclass"})


def client(n, sick=None, stage=None, pulse=True):
    labels = {}
    if pulse:
        labels["pulse"] = np.arange(n, dtype=float)
    if sick is not None:
        labels["sick"] = sick
    if stage is not None:
        labels["stage"] = stage
    return read_client("a", (np.arange(n, dtype=float)[:, None], labels), TASKS)


def cut(raw, split, seed=0, name="a"):
    return divide(TASKS, raw, split, seed=seed, client=name)


# Options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"test": 1.0}, "split: test=1.0 is not a fraction; give a number from 0 up to, but not including, 1."),
        ({"test": -0.1}, "split: test=-0.1 is not a fraction; give a number from 0 up to, but not including, 1."),
        (
            {"validation": "a"},
            "split: validation='a' is not a fraction; give a number from 0 up to, but not including, 1.",
        ),
        (
            {"test": True},
            "split: test=True is not a fraction; give a number from 0 up to, but not including, 1.",
        ),
        (
            {"test": float("nan")},
            "split: test=nan is not a fraction; give a number from 0 up to, but not including, 1.",
        ),
        (
            {"test": 0.5, "validation": 0.5},
            "split: test=0.5 and validation=0.5 leave no row for training; let them sum to less than 1.",
        ),
        ({"shots": 0}, "split: shots=0 is not a number of labels; give a whole number from 1 up."),
        ({"shots": 2.5}, "split: shots=2.5 is not a number of labels; give a whole number from 1 up."),
        ({"shots": True}, "split: shots=True is not a number of labels; give a whole number from 1 up."),
        (
            {"shots_rows": "sam"},
            "split: shots_rows='sam' is not known; did you mean 'same'? known are 'different', 'same'.",
        ),
        (
            {"by": "day", "group": "patient"},
            "split: rows cannot be split both by 'day' (by) and by 'patient' (group); choose one.",
        ),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(ConfigError) as caught:
        Split(**options)
    assert str(caught.value) == text


# Fractions


@given(
    n=st.integers(1, 60),
    test=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]),
    validation=st.sampled_from([0.0, 0.05, 0.09]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_every_row_is_in_one_part_and_classes_are_shared_out_evenly(n, test, validation, seed, data):
    sick = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=n, max_size=n)))
    stage = np.array(data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)), dtype=object)
    parts = cut(client(n, sick, stage), Split(test, validation), seed)
    assert sorted([*parts.train, *parts.validation, *parts.test]) == list(range(n))
    assert len(parts.train) >= 1
    assert all(np.all(np.diff(part) > 0) for part in (parts.train, parts.validation, parts.test))
    forced = len(parts.train) == 1  # then a row may have been taken back from the test part
    for ill in (0.0, 1.0, None):
        for letter in "abc":
            stratum = (np.isnan(sick) if ill is None else sick == ill) & (stage == letter)
            tested = int(stratum[parts.test].sum())
            assert abs(tested - test * stratum.sum()) < 1 + forced + 1e-9


def test_sizes_are_exact_where_they_can_be():
    for seed in range(20):
        parts = cut(client(40, sick=[0, 1] * 20), Split(test=0.25, validation=0.15), seed)
        assert (len(parts.train), len(parts.validation), len(parts.test)) == (24, 6, 10)
        assert abs(int((parts.test % 2).sum()) - 5) < 1  # 5 of the 20 sick ones


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_small_client_keeps_a_row_for_training(n):
    for seed in range(30):
        assert len(cut(client(n), Split(test=0.9), seed).train) >= 1
        assert len(cut(client(n), Split(test=0.0, validation=0.9), seed).train) >= 1


def test_rows_of_different_tasks_are_each_split_in_proportion():
    X1, X2 = np.zeros((50, 1)), np.ones((100, 1))
    raw = read_client("a", {"pulse": (X1, np.zeros(50)), "sick": (X2, np.tile([0, 1], 50))}, TASKS)
    test = cut(raw, Split(test=0.2)).test
    assert ((test < 50).sum(), (test >= 50).sum()) == (10, 20)


def test_seed_and_name_decide_and_nothing_else():
    raw = client(30, sick=[0, 1] * 15)
    first = cut(raw, Split(), seed=3).test.tolist()
    assert cut(raw, Split(), seed=3).test.tolist() == first
    others = [cut(raw, Split(), seed=4).test.tolist(), cut(raw, Split(), seed=3, name="b").test.tolist()]
    assert first not in others


def test_every_row_is_tested_as_often_as_any_other():
    raw = client(10, sick=[0] * 7 + [1] * 3)
    tested = np.zeros(10)
    for seed in range(1000):
        tested[cut(raw, Split(test=0.25), seed).test] += 1
    # Binomial(1000, 1/4) has a standard deviation of 13.7; five of them are never met by chance.
    assert np.all(np.abs(tested - 250) < 69)


def test_own_test_rows_take_the_place_of_the_fraction():
    rows = lambda *values: [[float(value)] for value in values]  # noqa: E731
    fed = Federation.from_clients(
        {"a": (rows(*range(10)), {"pulse": list(range(10))}), "b": (rows(*range(10)), {"pulse": list(range(10))})},
        {"pulse": "regression"},
        scaling="none",
        split=Split(test=0.5, validation=0.2),
        test={"a": {"pulse": (rows(77, 78), [70.0, None])}},
    )
    parts = fed.prepare(0).clients
    assert parts["a"].test.x[:, 0].tolist() == [77.0, 78.0]
    assert [part.tolist() for part in parts["a"].test.labels["pulse"]] == [[0], [70.0]]
    assert (len(parts["a"].train.x), len(parts["a"].validation.x)) == (8, 2)
    assert (len(parts["b"].train.x), len(parts["b"].validation.x), len(parts["b"].test.x)) == (3, 2, 5)


# Few shots


def test_each_task_has_rows_of_its_own():
    raw = client(100, sick=[0, 1] * 50, stage=["a", "b", "c", "c"] * 25)
    parts = cut(raw, Split(test=0.1, shots=20))
    rows = [parts.shots[task.name] for task in TASKS]
    assert [len(task) for task in rows] == [20, 20, 20]
    assert sorted(np.concatenate(rows)) == parts.train.tolist()  # no row twice, and no row without a label
    assert set(parts.train).isdisjoint(parts.test)


def test_shots_are_drawn_in_proportion_to_the_classes():
    raw = client(200, sick=[1] * 50 + [0] * 150, pulse=False)
    for seed in range(10):
        shots = cut(raw, Split(test=0.0, shots=20), seed).shots["sick"]
        assert int((shots < 50).sum()) == 5


def test_only_the_chosen_labels_reach_training():
    fed = Federation.from_clients(
        {"a": (np.arange(20.0)[:, None], {"pulse": np.arange(20.0), "sick": [0, 1] * 10})},
        TASKS[:2],
        scaling="none",
        split=Split(test=0.2, shots=4),
    )
    parts = fed.prepare(1).clients["a"]
    assert parts.train.counts() == {"pulse": 4, "sick": 4}
    assert len(parts.train.x) == 8
    assert parts.test.counts() == {"pulse": 4, "sick": 4}  # all labels of all 4 test rows
    at, pulse = parts.train.labels["pulse"]
    assert pulse.tolist() == parts.train.x[at, 0].tolist()  # here the label is the feature


def test_tasks_with_few_rows_come_first():
    # Only rows 0 to 4 are weighed, and shots=5 needs them all: the other task must keep to the rest.
    pulse = np.where(np.arange(10) < 5, 70.0, np.nan)
    raw = read_client("a", (np.zeros((10, 1)), {"pulse": pulse, "sick": [0, 1] * 5}), TASKS)
    for seed in range(20):
        shots = cut(raw, Split(test=0.0, shots=5), seed).shots
        assert shots["pulse"].tolist() == [0, 1, 2, 3, 4]
        assert shots["sick"].tolist() == [5, 6, 7, 8, 9]


def test_who_has_least_chooses_first():
    # One shot each from rows {0, 1}, {0} and {1, 2}: only 1, 0, 2 will do, and sparing alone cannot tell 0 from 1.
    nan = np.nan
    labels = {"pulse": [5.0, 5.0, nan], "sick": [1, nan, nan], "stage": [None, "a", "b"]}
    raw = read_client("a", (np.zeros((3, 1)), labels), TASKS)
    for seed in range(20):
        shots = cut(raw, Split(test=0.0, shots=1), seed).shots
        assert {task: rows.tolist() for task, rows in shots.items()} == {"sick": [0], "pulse": [1], "stage": [2]}


def test_rows_that_others_need_are_spared():
    # pulse has rows 0-5, sick 2-7 (six each): with shots=4 both must use the rows that only they have.
    row = np.arange(8)
    labels = {"pulse": np.where(row < 6, 1.0, np.nan), "sick": np.where(row > 1, row % 2, np.nan)}
    raw = read_client("a", (np.zeros((8, 1)), labels), TASKS)
    for seed in range(20):
        shots = cut(raw, Split(test=0.0, shots=4), seed).shots
        assert {0, 1} <= set(shots["pulse"])
        assert {6, 7} <= set(shots["sick"])


def test_a_task_that_the_client_lacks_needs_no_shots():
    assert list(cut(client(10), Split(test=0.0, shots=10)).shots) == ["pulse"]


def test_too_few_rows_for_the_shots():
    with pytest.raises(DataError) as caught:
        cut(client(10, sick=[0, 1] * 5), Split(test=0.0, shots=6))
    assert str(caught.value) == (
        "client 'a', task 'sick': 4 training labels are on rows that no other task uses, but shots=6 needs 6; "
        "lower shots, give the client more rows, or take shots_rows = 'same'."
    )


# The same rows for all tasks


def test_shots_on_the_same_rows():
    raw = client(30, sick=[0, 1, None] * 10, stage=["u", "u", "v"] * 10)
    division = cut(raw, Split(test=0.2, shots=4, shots_rows="same"))
    rows = division.shots["pulse"]
    assert len(rows) == 4
    assert all(np.array_equal(rows, division.shots[task]) for task in ("sick", "stage"))
    assert np.array_equal(division.train, rows)
    assert sorted(np.array([0, 1, 9])[rows % 3].tolist()) == [0, 0, 1, 1]  # as many of each class as there are


def test_too_few_rows_have_all_labels():
    with pytest.raises(DataError) as caught:
        cut(client(12, sick=[0, 1] + [None] * 10), Split(test=0.0, shots=3, shots_rows="same"))
    assert str(caught.value) == (
        "client 'a': 2 training rows have a label of each task, but shots=3 needs 3; "
        "lower shots, give the client more rows, or take shots_rows = 'different'."
    )
