"""What may not leave a client does not: names, rare levels, small tasks, and all of a client that is silent."""

import json

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.data import DEPLOYED, OPEN, Encoder, Limits, PreparedFederation, Task, agree, as_tasks, describe
from polyfed.data.features.raw import read_features
from polyfed.data.raw import read_client
from polyfed.data.schema.coding import shared_part
from polyfed.data.schema.limits import LONGEST_TEXT, OTHER
from polyfed.data.splits import Division
from polyfed.errors import ConfigError, DataError

TASKS = as_tasks({"pulse": "regression", "stage": "multiclass"})

NONE = np.array([], dtype=np.int64)


def summary(columns, labels, limits=DEPLOYED, held_out=(), tasks=TASKS, **options):
    X = pd.DataFrame(columns)
    raw = read_client("a", (X, labels), tasks)
    held_out = np.array(held_out, dtype=np.int64)
    train = np.setdiff1d(np.arange(len(X)), held_out)
    return describe(tasks, raw, Division(train, held_out[:0], held_out), limits=limits, **options)


def text_of(described):
    return json.dumps(described.to_dict())


# Names


def test_a_column_of_names_is_not_told():
    names = [f"Patient {i}" for i in range(4000)]
    for limits in (OPEN, DEPLOYED):
        reported = summary({"age": np.arange(4000.0), "name": names}, {"pulse": np.arange(4000.0)}, limits)
        assert "Patient" not in text_of(reported)
        assert (reported.kinds, reported.categories) == (("number", "wide"), {})
    assert Encoder.of(agree(TASKS[:1], {"a": reported})).names == ("age",)


def test_of_many_levels_the_most_frequent_are_told():
    streets = [f"street {i:03}" for i in range(300) for _ in range(1 + (i >= 50) + (i >= 210))]
    reported = summary({"street": streets}, {"pulse": np.arange(float(len(streets)))}, OPEN)
    assert reported.kinds == ("text",)
    # 90 of three rows, and of those with two the first by name; of the 50 with a single row none
    assert set(reported.categories["street"]) == {*(f"street {i}" for i in (*range(210, 300),)), OTHER} | {
        f"street {i:03}" for i in range(50, 60)
    }
    encoder = Encoder.of(agree(TASKS[:1], {"a": reported}))
    rows = read_features(pd.DataFrame({"street": ["street 299", "street 000"]}), where="X")
    at = encoder.names.index("street=other")
    assert encoder.encode(rows, where="X")[:, at].tolist() == [0, 1]


def test_levels_of_few_rows_become_one_other():
    wards = ["north"] * 6 + ["south"] * 5 + ["Dr Meier"] * 4 + ["Dr Huber"]
    reported = summary({"ward": wards}, {"pulse": np.arange(16.0)})
    assert reported.categories == {"ward": ("north", OTHER, "south")}
    assert summary({"ward": wards}, {"pulse": np.arange(16.0)}, OPEN).categories["ward"] == tuple(sorted(set(wards)))
    long = ["x" * (LONGEST_TEXT + 1)] * 16
    assert summary({"ward": long}, {"pulse": np.arange(16.0)}, OPEN).categories == {"ward": (OTHER,)}


def test_levels_of_all_clients_that_are_too_many_for_everyone_are_cut_to_those_that_most_have():
    def reported(levels):
        return summary({"ward": levels}, {"pulse": np.arange(float(len(levels)))}, OPEN)

    usual = [f"z{i}" for i in range(60)]
    summaries = {"a": reported(usual), "b": reported(usual), "m": reported([f"a{i}" for i in range(100)])}
    (column,) = agree(TASKS[:1], summaries).columns
    assert len(column.categories) == 101
    assert {*usual, OTHER} <= set(column.categories)


def test_an_unknown_level_is_other_where_there_is_one():
    reported = summary({"ward": ["north"] * 9 + ["south"] * 2}, {"pulse": np.arange(11.0)})
    encoder = Encoder.of(agree(TASKS[:1], {"a": reported}))
    assert encoder.names == ("ward=north", "ward=other")
    rows = read_features(pd.DataFrame({"ward": ["north", "south", "west", None]}), where="X")
    assert encoder.encode(rows, where="X").tolist() == [[1, 0], [0, 1], [0, 1], [0, 0]]


def test_classes_are_named_by_training_rows_and_not_by_few_of_them():
    stages = ["a"] * 6 + ["b"] * 5 + ["c"] * 2 + ["d"] * 7
    reported = summary({"age": np.arange(20.0)}, {"stage": stages}, held_out=range(13, 20))
    assert reported.classes == {"stage": ("a", "b")}
    assert summary({"age": np.arange(20.0)}, {"stage": stages}, OPEN, range(13, 20)).classes == {
        "stage": ("a", "b", "c")
    }


def test_labels_that_few_shot_learning_sets_aside_still_name_their_classes():
    raw = read_client("a", ([[float(i)] for i in range(6)], {"stage": ["a", "b", "c", "a", "b", "d"]}), TASKS)
    division = Division(np.array([0]), NONE, np.array([5]), {"stage": np.array([0])})
    reported = describe(TASKS, raw, division)
    assert (reported.labels, reported.classes) == ({"stage": 1}, {"stage": ("a", "b", "c")})


# Small clients


def test_a_client_with_few_labels_tells_nothing():
    reported = summary({"age": np.arange(9.0), "sex": ["m"] * 9}, {"pulse": np.arange(9.0), "stage": ["a"] * 9})
    assert reported.is_silent
    assert reported.to_dict() == {
        **{key: [] for key in ("columns", "kinds", "gaps")},
        **{key: {} for key in ("categories", "classes", "labels", "targets", "ranks")},
        "moments": None,
    }


def test_a_task_with_few_labels_is_not_spoken_of():
    stages = ["a", "b"] * 4 + [None] * 4
    reported = summary({"age": np.arange(12.0)}, {"pulse": np.arange(12.0), "stage": stages})
    assert reported.labels == {"pulse": 12}
    assert reported.classes == {}
    assert list(reported.targets) == ["pulse"]


def test_a_column_with_few_values_is_as_if_it_were_empty():
    weight = [80.0] + [None] * 11
    reported = summary({"age": np.arange(12.0), "weight": weight}, {"pulse": np.arange(12.0)})
    assert reported.moments.to_dict() == {"count": [12, 0], "mean": [5.5, 0.0], "std": [reported.moments.std[0], 0.0]}
    assert summary({"age": np.arange(12.0), "weight": weight}, {"pulse": np.arange(12.0)}, OPEN).moments.mean[1] == 80.0


@pytest.mark.parametrize("wrong", [{"min_rows": 0}, {"min_count": -1}, {"min_rows": 2.5}, {"min_count": True}])
def test_limits_are_whole_numbers_from_one_up(wrong):
    with pytest.raises(ConfigError, match=r"^min_\w+ is .*; give a whole number from 1 up\.$"):
        Limits(**wrong)


def test_a_study_may_be_stricter_and_never_laxer():
    assert DEPLOYED.at_least(Limits(1, 1)) == DEPLOYED
    assert DEPLOYED.at_least(Limits(3, 50)) == Limits(10, 50)


# A federation under limits


def hospitals(small=4, seed=0):
    rng = np.random.default_rng(seed)
    clients = {}
    for name, n in (("basel", 30), ("bern", 24), ("zug", small)):
        x = rng.normal(0, 1, n)
        ward = np.where(np.arange(n) % 3 == 0, "north", "south").astype(object)
        if n > 20:
            ward[1] = "north" if name == "basel" else "west"
        else:
            x += 100.0
        X = pd.DataFrame({"age": x, "ward": ward})
        few = np.where(np.arange(n) < 5, rng.poisson(2, n), np.nan)
        clients[name] = (X, {"pulse": 60 + 10 * np.sin(x), "visits": few})
    return clients


KINDS = {"pulse": "regression", "visits": "count"}


def prepared(limits, clients=None) -> PreparedFederation:
    made = pf.Federation.from_clients(clients or hospitals(), KINDS, split=pf.Split(test=0.0))
    return made.with_options(limits=limits).prepare(0)


def test_a_silent_client_changes_nothing_that_others_know():
    with_zug, without = prepared(Limits(10, 2)), prepared(Limits(10, 2), dict(list(hospitals().items())[:2]))
    assert with_zug.agreed.to_dict() == without.agreed.to_dict()
    assert with_zug.round0.silent == ("zug",)
    assert with_zug.round0.labels == {"basel": {"pulse": 30}, "bern": {"pulse": 24}, "zug": {}}
    assert prepared(OPEN).agreed.to_dict() != without.agreed.to_dict()


def test_what_updates_are_made_of():
    study = prepared(Limits(10, 2))
    assert study.shared("zug").n_labels == 0
    assert study.clients["zug"].train.n_labels == 8
    assert list(study.shared("basel").labels) == ["pulse"]
    assert set(study.clients["basel"].train.labels) == {"pulse", "visits"}
    whole = prepared(OPEN)
    assert all(whole.shared(name) is whole.clients[name].train for name in whole.clients)


def test_a_rare_level_is_no_level_in_an_update_even_if_others_named_it():
    columns = agree(
        TASKS[:1],
        {
            "a": summary({"ward": ["north"] * 9 + ["south"] * 5}, {"pulse": np.arange(14.0)}),
            "b": summary({"ward": ["north"] * 9 + ["south"] * 2}, {"pulse": np.arange(11.0)}),
        },
    ).columns
    assert columns[0].categories == ("north", OTHER, "south")
    x = np.array([[1.0, 0, 0]] * 9 + [[0.0, 0, 1]] * 2)
    data = pf.data.ClientData(x, {"pulse": (np.arange(11), np.zeros(11))}, {"pulse": None})
    assert shared_part(data, columns, DEPLOYED).x.tolist() == [[1, 0, 0]] * 9 + [[0, 1, 0]] * 2
    assert shared_part(data, columns, OPEN) is data


def test_limits_survive_storage():
    study = prepared(Limits(10, 2))
    again = PreparedFederation.from_saved(json.loads(json.dumps(study.to_dict())), study.arrays())
    assert again.round0 == study.round0
    assert again.shared("basel").x.tobytes() == study.shared("basel").x.tobytes()


def test_who_would_be_left_out_elsewhere():
    assert prepared(OPEN).below(DEPLOYED) == {
        "basel": {"visits": 5},
        "bern": {"visits": 5},
        "zug": {"pulse": 4, "visits": 4},
    }


def test_everyone_is_silent():
    with pytest.raises(DataError) as caught:
        prepared(Limits(100))
    assert str(caught.value) == (
        "the federation: no client has as many training labels as it takes to take part; "
        "give more labels, or lower min_rows."
    )


def test_given_classes_serve_where_no_client_may_name_them():
    task = [Task("sick", "binary", classes=("no", "yes"))]
    labels = ["no"] * 10 + ["yes"] * 2
    assert summary({"age": np.arange(12.0)}, {"sick": labels}, tasks=task).classes == {}
    open_task = as_tasks({"sick": "binary"})
    reported = summary({"age": np.arange(12.0)}, {"sick": labels}, tasks=open_task)
    with pytest.raises(DataError, match=r"so the other class is unknown; leave the task out, or give it classes="):
        agree(open_task, {"a": reported})
