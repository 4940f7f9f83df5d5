"""A prepared federation: new rows, new clients, members left out, and an exact copy from JSON and arrays."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from polyfed.data import SCALINGS, Federation, PreparedFederation, Split, Task
from polyfed.errors import DataError, UnknownNameError, UsageError

TASKS = [
    Task("pulse"),
    Task("sick", "binary"),
    Task("stage", "multiclass"),
    Task("cured", "proportion"),
    Task("visits", "count"),
]


def frame(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.normal(40, 10, n), "sex": rng.choice(["f", "m"], n), "weight": rng.normal(70, 9, n)})
    X.loc[0, "weight"] = np.nan
    labels = {
        "pulse": rng.normal(70, 8, n),
        "sick": rng.choice(["no", "yes"], n),
        "stage": rng.choice([1, 2, 3], n),
        "cured": np.column_stack([rng.integers(0, 5, n), np.full(n, 5)]),
        "visits": rng.poisson(3, n),
    }
    return X, labels


def prepared(scaling="federated", split=None, names=("basel", "bern"), **options):
    clients = {name: frame(12, seed) for seed, name in enumerate(names)}
    fed = Federation.from_clients(clients, TASKS, scaling=scaling, split=split or Split(0.25, 0.2), **options)
    return fed.prepare(0)


def rejection(action, kind=DataError):
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


# New rows


@pytest.mark.parametrize("scaling", SCALINGS)
def test_rows_of_the_client_are_encoded_as_before(scaling):
    fed = Federation.from_clients({"a": frame(9, 0), "b": frame(9, 1)}, TASKS, scaling=scaling, split=Split(test=0.0))
    study = fed.prepare(0)
    X = frame(9, 1)[0]
    expected = study.clients["b"].train.x
    np.testing.assert_array_equal(study.encode("b", X), expected)
    shuffled = X[["weight", "sex", "age"]].assign(day=pd.Timestamp("2024-01-02"), note=[1, "x"] + [None] * 7)
    np.testing.assert_array_equal(study.encode("b", shuffled), expected)
    np.testing.assert_array_equal(study.encode("b", X.astype(object).to_numpy()), expected)


def test_new_rows_that_cannot_be_encoded():
    study = prepared()
    assert rejection(lambda: study.encode("basle", [[1.0]]), UnknownNameError) == (
        "client 'basle' is no member of this federation; did you mean 'basel'? it has 2; admit() takes in new ones."
    )
    assert rejection(lambda: study.encode("basel", pd.DataFrame({"age": [1.0], "sex": ["m"]}))) == (
        "client 'basel', new rows: lacks column 'weight'; add it, empty where it is unknown."
    )
    assert rejection(lambda: study.encode("basel", pd.DataFrame({"u": [1.0]}))) == (
        "client 'basel', new rows: lacks column 'age', column 'sex', column 'weight'; "
        "add it, empty where it is unknown."
    )
    assert rejection(lambda: study.encode("basel", [[1.0, 2.0]])) == (
        "client 'basel', new rows: has 2 columns, not 3; give the columns 'age', 'sex', 'weight' in this order."
    )


# New clients


def late_client():
    X = pd.DataFrame({"age": [30.0, 50.0], "sex": ["x", "m"], "weight": [60.0, None]})
    return X, {"pulse": [60.0, 80.0], "sick": ["yes", None]}


@pytest.mark.filterwarnings("ignore:.*a category that training did not know")
@pytest.mark.parametrize("form", ["pair", "by task", "table", "csv", "parquet"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_new_client(scaling, form, tmp_path):
    study = prepared(scaling)
    X, labels = late_client()
    table = X.assign(**labels, hospital="chur")
    data = {
        "pair": (X, labels),
        "by task": {task: (X, y) for task, y in labels.items()},
        "table": table,
        "csv": tmp_path / "chur.csv",
        "parquet": str(tmp_path / "chur.parquet"),
    }[form]
    table.to_csv(tmp_path / "chur.csv", index=False)
    table.to_parquet(tmp_path / "chur.parquet")
    with pytest.warns(UserWarning, match=r"column 'sex': 1 row holds a category that training did not know \('x'\)"):
        own, encoder = study.admit("chur", data)
    assert encoder.names == ("age", "sex=f", "sex=m", "weight", "weight is missing")
    assert own.tasks == study.clients["basel"].train.tasks
    assert own.counts() == {"pulse": 2, "sick": 1, "stage": 0, "cured": 0, "visits": 0}
    assert own.x[:, 1:3].tolist() == [[0, 0], [0, 1]]  # nobody had sex "x" at round 0
    assert own.labels["sick"][1].tolist() == [1.0]
    if scaling == "local":
        assert own.x[:, 0].tolist() == [-1.0, 1.0]
        assert own.labels["pulse"][1].tolist() == [-1.0, 1.0]
        assert (own.codecs["pulse"].shift, own.codecs["pulse"].scale) == (70.0, 10.0)
    else:
        codec = study.spec.codecs["pulse"]
        np.testing.assert_allclose(own.labels["pulse"][1] * codec.scale + codec.shift, [60.0, 80.0])
        np.testing.assert_allclose(own.x[0], study.encode("basel", X)[0])
    if scaling in ("targets", "none"):
        assert own.x[:, 0].tolist() == [30.0, 50.0]


def test_new_clients_that_cannot_be_used(tmp_path):
    study = prepared()
    X, labels = late_client()
    assert rejection(lambda: study.admit("chur", (X, {"stage": [1, 4]}))) == (
        "client 'chur', task 'stage', row 1: label 4 is not one of the classes; known are 1, 2, 3."
    )
    X.assign(sick=["no", "maybe"]).to_csv(tmp_path / "chur.csv", index=False)
    assert rejection(lambda: study.admit("chur", tmp_path / "chur.csv")) == (
        "client 'chur', task 'sick', line 3 of chur.csv: label 'maybe' is not one of the classes; known are 'no', 'yes'."
    )
    assert rejection(lambda: study.admit("chur", X.drop(columns="age"))) == (
        "client 'chur', table: has no column 'age'; known are 'sex', 'weight'."
    )
    assert rejection(lambda: study.admit("bern", (X, labels)), UsageError) == (
        "admit: client 'bern' is a member already; choose a name that is not taken."
    )
    assert rejection(lambda: study.admit("chur", (X, {"puls": [1, 2]})), UnknownNameError) == (
        "client 'chur': task 'puls' is unknown; "
        "did you mean 'pulse'? known are 'pulse', 'sick', 'stage', 'cured', 'visits'."
    )


@pytest.mark.filterwarnings("ignore:.*a category that training did not know")
def test_guests_are_a_study_of_their_own():
    study = prepared()
    late_clients = study.with_late_client("zug", late_client(), study.with_late_client("chur", late_client()))
    assert late_clients.spec.clients == tuple(late_clients.clients) == ("chur", "zug")
    for part in ("validation", "test"):
        assert getattr(late_clients.clients["zug"], part).n_labels == 0
        assert getattr(late_clients.clients["zug"], part).x.shape == (0, study.spec.n_features)
    same(late_clients, copied(late_clients))


# Members


def test_members_left_out():
    study = prepared(names=("a", "b", "c"))
    left = study.without(["b"])
    assert left.spec.clients == tuple(left.clients) == tuple(left.encoders) == tuple(left.round0_bytes) == ("a", "c")
    assert left.clients["c"] is study.clients["c"]
    assert left.agreed is study.agreed
    assert study.without("b").spec.clients == ("a", "c")
    assert rejection(lambda: study.without("abc"), UnknownNameError).startswith("client 'abc' is no member")
    assert rejection(lambda: study.without(["a", "b", "c"]), UsageError) == (
        "without: no client would be left; keep at least one."
    )


def test_what_everyone_knows():
    study = prepared()
    assert study.spec.n_features == 5
    assert [task.classes for task in study.spec.tasks] == [None, ("no", "yes"), (1, 2, 3), None, None]
    assert study.clients["basel"].train.codecs is study.spec.codecs
    assert study.round0_bytes.keys() == study.clients.keys()
    assert prepared("none").round0_bytes["bern"] < study.round0_bytes["bern"]


# Storage


def copied(study):
    text = json.dumps(study.to_dict())
    return PreparedFederation.from_saved(json.loads(text), load(save(study.arrays())))


def same(one, two):
    assert one.spec == two.spec
    assert (one.scaling, one.round0_bytes) == (two.scaling, two.round0_bytes)
    assert one.agreed.to_dict() == two.agreed.to_dict()
    assert list(one.clients) == list(two.clients)
    for name in one.clients:
        assert one.encoders[name].columns == two.encoders[name].columns
        for field in ("mean", "scale"):
            ours, theirs = getattr(one.encoders[name].scaler, field), getattr(two.encoders[name].scaler, field)
            assert ours.tobytes() == theirs.tobytes()
        for part in ("train", "validation", "test"):
            ours, theirs = getattr(one.clients[name], part), getattr(two.clients[name], part)
            assert ours.x.shape == theirs.x.shape
            assert ours.x.tobytes() == theirs.x.tobytes()
            assert ours.codecs == theirs.codecs
            assert list(ours.labels) == list(theirs.labels)
            for task in ours.labels:
                for a, b in zip(ours.labels[task], theirs.labels[task], strict=True):
                    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def test_inputs_that_clients_have_in_common_are_kept_once():
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12.0)
    clients = {name: (x[i : i + 4], {"level": y[i : i + 4]}) for i, name in enumerate("abc")}
    test = {name: (x[6:], {"level": y[6:] + i}) for i, name in enumerate("ab")} | {"c": (-x[6:], {"level": y[6:]})}
    study = Federation.from_clients(clients, {"level": "regression"}, test=test).prepare(0)
    stored = [name for name in study.arrays() if name.endswith("test/x")]
    assert stored == ["client/0/test/x", "client/2/test/x"]
    again = copied(study)
    same(study, again)
    assert again.clients["a"].test.x is again.clients["b"].test.x


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("split", [Split(0.25, 0.2), Split(test=0.0), Split(test=0.1, shots=1)])
def test_an_exact_copy(scaling, split):
    study = prepared(scaling, split)
    again = copied(study)
    same(study, again)
    X = frame(4, 9)[0]
    assert again.encode("bern", X).tobytes() == study.encode("bern", X).tobytes()
    assert (again.encoders["basel"] is again.encoders["bern"]) == (scaling != "local")


@settings(max_examples=25)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_any_name_survives(names):
    clients = {name: ([[float(i)], [2.0]], {"a/b.c": [1.0, i]}) for i, name in enumerate(names)}
    study = Federation.from_clients(clients, {"a/b.c": "regression"}).prepare(0)
    same(study, copied(study))


def test_truth_survives():
    grid = np.linspace(0, 1, 5)[:, None]
    fed = Federation.from_clients(
        {"a": ([[1.0]], {"f": [1.0]}), "b": ([[2.0]], {"f": [1.0]})},
        {"f": "regression"},
        truth={"b": {"x": grid, "f": grid[:, 0] ** 2}},
    )
    again = copied(fed.prepare(0)).truth
    assert list(again) == ["b"]
    assert list(again["b"]) == ["x", "f"]
    assert again["b"]["x"].tolist() == grid.tolist()
    assert again["b"]["f"].tolist() == (grid[:, 0] ** 2).tolist()
    assert fed.prepare(0).without("b").truth == {}


def test_a_copy_whose_arrays_are_lost():
    study = prepared()
    arrays = {name: array for name, array in study.arrays().items() if not name.startswith("client/1/")}
    assert rejection(lambda: PreparedFederation.from_saved(study.to_dict(), arrays)) == (
        "saved study: arrays of client 'bern' are missing; give both parts of one save."
    )
