"""Federations of images: who has which files, and how they become numbers."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from polyfed.data import Split, load_dataset
from polyfed.data.datasets import load_images
from polyfed.data.images import ImageFederation, make_images
from polyfed.errors import ConfigError, DataError, UnknownNameError, UsageError

TASKS = {"tumour": "binary", "age": "regression"}


def code(path, corruption=None):
    """Two numbers that only this path (and corruption) has."""
    digest = hashlib.sha256(f"{Path(path).name}{corruption or ''}".encode()).digest()
    return [int.from_bytes(digest[:4], "big") / 2**32, int.from_bytes(digest[4:8], "big") / 2**32]


class Eye:
    """A function from paths to features that remembers what it was shown."""

    def __init__(self):
        self.calls = []

    def __call__(self, paths, corruption=None):
        self.calls.append(([path.name for path in paths], corruption))
        return np.array([code(path, corruption) for path in paths])


@pytest.fixture
def scans(tmp_path):
    for name in "abcdefgh":
        (tmp_path / f"{name}.png").touch()
    return tmp_path


def wards(scans):
    clients = {
        "w2": (["a.png", "e.png"], {"tumour": ["no", "yes"], "age": [50.0, None]}),
        "w1": {"tumour": (["a.png", "b.png", "c.png"], ["yes", "no", "no"]), "age": (["d.png", "c.png"], [61.0, 40.0])},
    }
    test = {"w1": (["f.png", "g.png"], {"tumour": ["yes", "no"], "age": [70.0, 30.0]})}
    return ImageFederation.from_clients(clients, TASKS, test=test, folder=scans)


def plain_study(federation):
    return federation.with_options(scaling="none", split=Split(test=0.0)).prepare(0)


def test_every_label_meets_the_features_of_its_image(scans):
    study = plain_study(wards(scans).with_features(Eye()))
    expected = {  # client, part, task → image → label
        ("w1", "train", "tumour"): {"a": 1.0, "b": -1.0, "c": -1.0},
        ("w1", "train", "age"): {"d": 61.0, "c": 40.0},
        ("w1", "test", "tumour"): {"f": 1.0, "g": -1.0},
        ("w1", "test", "age"): {"f": 70.0, "g": 30.0},
        ("w2", "train", "tumour"): {"a": -1.0, "e": 1.0},
        ("w2", "train", "age"): {"a": 50.0},
    }
    for (client, part, task), pairs in expected.items():
        data = getattr(study.clients[client], part)
        rows, labels = data.labels[task]
        found = {tuple(x): y for x, y in zip(data.x[rows].tolist(), labels, strict=True)}
        assert found == {tuple(code(f"{name}.png")): y for name, y in pairs.items()}, (client, part, task)


def test_every_distinct_image_is_seen_once(scans):
    eye = Eye()
    wards(scans).with_features(eye)
    assert [(sorted(names), corruption) for names, corruption in eye.calls] == [
        (["a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "g.png"], None)
    ]


def test_nothing_is_opened_before_it_is_asked_for():
    made = ImageFederation.from_clients({"w": {"age": (["x.png"], [1.0])}}, {"age": "regression"}, folder="nowhere")
    assert made.names == ("w",)
    assert made.of("w", "age")[0] == [Path("nowhere/x.png")]


def test_images_and_labels_of_a_task(scans):
    fed = wards(scans)
    paths, labels = fed.of("w1", "tumour")
    assert ([path.name for path in paths], labels.tolist()) == (["a.png", "b.png", "c.png"], ["yes", "no", "no"])
    paths, labels = fed.of("w1", "age", test=True)
    assert ([path.name for path in paths], labels.tolist()) == (["f.png", "g.png"], [70.0, 30.0])
    assert fed.of("w2", "age", test=True)[0] == []
    assert repr(fed) == (
        "ImageFederation of 2 clients and 5 images; tumour (binary): 5 labels, age (regression): 3 labels, "
        "2 further images for testing"
    )
    with pytest.raises(UnknownNameError, match="client 'w3' is unknown; known are 'w1', 'w2'"):
        fed.of("w3", "age")
    with pytest.raises(UnknownNameError, match="task 'tumor' is unknown; did you mean 'tumour'"):
        fed.of("w1", "tumor")


def test_regression_targets_are_scaled_by_training_images_alone(scans):
    study = wards(scans).with_features(Eye()).with_options(split=Split(test=0.0)).prepare(0)
    ages = np.array([61.0, 40.0, 50.0])
    _, coded = study.clients["w1"].test.labels["age"]
    np.testing.assert_allclose(coded, (np.array([70.0, 30.0]) - ages.mean()) / ages.std(), rtol=1e-12)


# Corrupted test images


def test_only_test_images_are_corrupted(scans):
    eye, fed = Eye(), wards(scans)
    clean, masked = plain_study(fed.with_features(eye)), plain_study(fed.corrupted("masked").with_features(eye))
    assert [(sorted(names), corruption) for names, corruption in eye.calls[1:]] == [
        (["a.png", "b.png", "c.png", "d.png", "e.png"], None),
        (["f.png", "g.png"], "masked"),
    ]
    for name in ("w1", "w2"):
        np.testing.assert_array_equal(clean.clients[name].train.x, masked.clients[name].train.x)
    assert masked.clients["w1"].test.x.tolist() == [code("f.png", "masked"), code("g.png", "masked")]
    assert clean.clients["w1"].test.x.tolist() == [code("f.png"), code("g.png")]
    assert repr(fed.corrupted("blurred")).endswith("2 blurred images for testing")


def test_an_image_may_be_trained_on_and_tested_corrupted(scans):
    data = {"w": {"age": (["a.png", "b.png"], [1.0, 2.0])}}
    fed = ImageFederation.from_clients(
        data, {"age": "regression"}, test={"w": {"age": (["a.png"], [1.0])}}, folder=scans
    )
    parts = plain_study(fed.corrupted("blurred").with_features(Eye())).clients["w"]
    assert parts.train.x.tolist() == [code("a.png"), code("b.png")]
    assert parts.test.x.tolist() == [code("a.png", "blurred")]


def test_what_cannot_be_corrupted(scans):
    with pytest.raises(ConfigError, match="corruption 'mask' is not known; did you mean 'masked'"):
        wards(scans).corrupted("mask")
    untested = ImageFederation.from_clients({"w": {"age": (["a.png"], [1.0])}}, {"age": "regression"})
    with pytest.raises(UsageError, match="no client has test images of its own"):
        untested.corrupted("masked")
    with pytest.raises(ConfigError, match=r"embed: cannot be called as embed\(paths, corruption='masked'\)"):
        wards(scans).corrupted("masked").with_features(lambda paths: np.zeros((len(paths), 1)))


# Errors


@pytest.mark.parametrize(
    ("embed", "text"),
    [
        (lambda paths: np.zeros(len(paths)), r"embed: gave float64 of shape \(7,\) for 7 images; let it return a row"),
        (lambda paths: np.zeros((3, 2)), r"embed: gave float64 of shape \(3, 2\) for 7 images"),
        (lambda paths: np.array([["x"]] * len(paths)), "embed: gave <U1"),
        (
            lambda paths: [[np.nan if path.name == "d.png" else 1.0] for path in paths],
            r"embed: a feature of .*/d\.png is not finite",
        ),
    ],
)
def test_a_function_that_makes_no_features(scans, embed, text):
    with pytest.raises(DataError, match=text):
        wards(scans).with_features(embed)


def test_what_is_no_function(scans):
    with pytest.raises(ConfigError, match="embed='resnet18' is not a function"):
        wards(scans).with_features("resnet18")


def test_corrupted_images_have_as_many_features(scans):
    def narrow(paths, corruption=None):
        return np.zeros((len(paths), 2 if corruption else 3))

    with pytest.raises(DataError, match="features of masked images: has 2 columns, not 3"):
        wards(scans).corrupted("masked").with_features(narrow)


def test_a_missing_file_is_named_before_any_is_opened(scans):
    (scans / "d.png").unlink()
    eye = Eye()
    with pytest.raises(DataError) as caught:
        wards(scans).with_features(eye)
    assert str(caught.value) == (
        f"client 'w1', task 'age', row 0: there is no file {scans.as_posix()}/d.png; put it there or drop the row."
    )
    assert eye.calls == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"age": ("a.png", [1.0])}, "client 'w', task 'age': 'a.png' is not a list of paths"),
        ({"age": (["a.png", None], [1.0, 2.0])}, "client 'w', task 'age', row 1: None is not a path"),
        ({"age": (["a.png"], [1.0, 2.0])}, "2 labels for 1 rows"),
        ({"age": ["a.png"]}, "client 'w', task 'age': is not a pair"),
        (3, "client 'w': is given as int"),
    ],
)
def test_clients_that_make_no_sense(data, text):
    with pytest.raises(DataError, match=text):
        ImageFederation.from_clients({"w": data}, {"age": "regression"})


# A table of one's own


@pytest.fixture
def table(scans):
    lines = ["path,site,tumour,age,part", "b.png,1,no,30,train", "a.png,2,yes,,train", "", "b.png,1,yes,44,train"]
    (scans / "list.csv").write_text("\n".join([*lines, "c.png,1,,50,test", "d.png,2,no,60,train"]) + "\n")
    return scans / "list.csv"


def test_a_table_of_images(table):
    fed = load_images("images", table=table, tasks=TASKS, client="site", test="part == 'test'")
    assert fed.names == ("1", "2")
    assert [path.name for path in fed.of("1", "age")[0]] == ["b.png", "b.png"]  # as often as it is listed
    assert fed.of("1", "age", test=True) == ([table.parent / "c.png"], [50.0])
    assert fed.of("1", "tumour", test=True)[0] == []
    eye = Eye()
    parts = plain_study(fed.with_features(eye)).clients
    assert eye.calls == [(["a.png", "b.png", "c.png", "d.png"], None)]
    assert parts["1"].train.x.tolist() == [code("b.png")] * 2
    assert parts["1"].train.labels["tumour"][1].tolist() == [-1.0, 1.0]
    assert parts["2"].train.x.tolist() == [code("a.png"), code("d.png")]
    assert [a.tolist() for a in parts["2"].train.labels["age"]] == [[1], [60.0]]


def test_a_parquet_file_in_another_folder(table, tmp_path):
    import pandas as pd

    elsewhere = tmp_path / "lists"
    elsewhere.mkdir()
    pd.read_csv(table).rename(columns={"path": "file"}).to_parquet(elsewhere / "list.parquet")
    options = {"table": elsewhere / "list.parquet", "path": "file", "client": "site"}
    fed = load_images("images", **options, folder=tmp_path, tasks={"old": "binary"}, derive={"old": "age > 40"})
    paths, labels = fed.of("1", "old")
    assert ([path.name for path in paths], labels.tolist()) == (["b.png", "b.png", "c.png"], [False, True, True])
    assert paths[0].is_file()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "paths"}, r"list\.csv: has no column 'paths'; did you mean 'path'"),
        ({"client": "sites"}, "has no column 'sites'; did you mean 'site'"),
        ({"tasks": {"tumor": "binary"}}, "task 'tumor' has no column; did you mean 'tumour'"),
        ({"tasks": None}, "there is no task"),
        ({"test": "parts == 'test'"}, "has no column 'parts'; did you mean 'part'"),
        ({"test": "age < 55"}, "client '1': has test images but no others; leave it out"),
        ({"path": "age"}, r"line 2 of list\.csv: 30.0 in column 'age' is not a path"),
        ({"tasks": {"part": "regression"}}, r"line 2 of list\.csv \(client '1'\): label 'train' is not a number"),
    ],
)
def test_tables_that_are_misread(table, options, text):
    options = {"table": table, "tasks": {"tumour": "binary"}, "client": "site"} | options
    with pytest.raises((ConfigError, DataError), match=text):
        load_images("images", **options)


def test_a_listed_file_that_is_not_there(table):
    (table.parent / "d.png").unlink()
    fed = load_images("images", table=table, tasks=TASKS, client="site")
    with pytest.raises(
        DataError, match=r"line 7 of list\.csv: there is no file .*/d\.png; put it there or drop the row"
    ):
        fed.with_features(Eye())


def test_an_empty_path(table):
    table.write_text(table.read_text().replace("d.png", ""))
    with pytest.raises(DataError, match=r"line 7 of list\.csv: nan in column 'path' is not a path"):
        load_images("images", table=table, tasks=TASKS, client="site")


# By name


def test_data_sets_of_images_by_name(tmp_path):
    table = make_images(tmp_path / "made", 12)
    fed = load_dataset("images", table=table, tasks={"shape": "binary", "x": "regression"}, embed=Eye())
    assert repr(fed) == (
        "Federation of 4 clients and 12 rows; shape (binary): 12 labels, x (regression): 12 labels; scaling 'federated'"
    )
    with pytest.raises(ConfigError, match="data set 'images' is of images, and nothing says how"):
        load_dataset("images", table=table)
    with pytest.raises(ConfigError, match="data set 'celebA' is not known; did you mean 'celeba'"):
        load_images("celebA")
    with pytest.raises(ConfigError, match="data set 'celeba' has no option 'shot'; did you mean 'shots'"):
        load_images("celeba", shot=3)
    with pytest.raises(ConfigError, match="there is no table of images; give table="):
        load_images("images")
