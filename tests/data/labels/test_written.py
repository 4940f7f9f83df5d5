"""Labels and names are what is written: which texts are classes, which are numbers, which mean that there is nothing."""

from __future__ import annotations

import gzip
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, Split, Task
from polyfed.data.labels.written import USUAL, as_labels, checked_missing
from polyfed.errors import ConfigError, DataError

STAGE = {"stage": "multiclass"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table_of(cells, name="stage"):
    return f"ward,age,{name}\n" + "".join(f"w,{i},{cell}\n" for i, cell in enumerate(cells))


def vocabulary(fed, task="stage"):
    return {label for raw in fed.raw.values() if task in raw.labels for label in raw.labels[task].vocabulary}


def rows(fed, task="stage"):
    return sum(len(raw.labels[task].at) for raw in fed.raw.values() if task in raw.labels)


def read(source, **options):
    return Federation.from_table(source, **{"client": "ward", "tasks": STAGE, **options})


# ---- classes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [text for text in USUAL if text])
def test_a_class_may_be_called_like_nothing(here, marker):
    """It keeps its rows, and that it was taken for a class is said."""
    (here / "t.csv").write_text(table_of(["a", "b", f'"{marker}"', "a"]))
    with pytest.warns(UserWarning, match="is taken for a class") as reported:
        fed = read("t.csv")
    assert vocabulary(fed) == {"a", "b", marker}
    assert rows(fed) == 4
    assert str(reported[0].message) == (
        f"t.csv: task 'stage': {marker!r} is taken for a class (1 rows); if it means that there is no label, say so with "
        f"missing={['', marker]} (--missing)"
    )


def test_an_empty_field_is_no_label_unless_the_user_says_so(here):
    (here / "t.csv").write_text(table_of(["a", "", "b", '""']))
    assert (vocabulary(read("t.csv")), rows(read("t.csv"))) == ({"a", "b"}, 2)
    assert (vocabulary(read("t.csv", missing=[])), rows(read("t.csv", missing=[]))) == ({"a", "b", ""}, 4)


def test_a_list_of_markers_is_taken_by_its_word(here):
    (here / "t.csv").write_text(table_of(["a", "?", "b", "", "NA"]))
    fed = read("t.csv", missing=["", "?", "NA"])
    assert (vocabulary(fed), rows(fed)) == ({"a", "b"}, 2)
    with pytest.warns(UserWarning, match=r"'' is taken for a class \(1 rows\).* missing=\['\?', ''\]"):
        fed = read("t.csv", missing=["?"])
    assert vocabulary(fed) == {"a", "b", "", "NA"}


def test_with_declared_classes_nothing_is_in_doubt(here):
    (here / "t.csv").write_text(table_of(["no", "yes", "NA", "yes"]))
    assert rows(read("t.csv", tasks={"stage": "binary"}, missing=["", "NA"])) == 3
    assert rows(read("t.csv", tasks=[Task("stage", "binary", classes=("no", "yes"))])) == 3
    assert rows(read("t.csv", tasks=[Task("stage", "multiclass", classes=("no", "yes", "NA"))])) == 4
    with pytest.raises(DataError, match="label 'NA' is not one of the classes"):
        read("t.csv", tasks=[Task("stage", "binary", classes=("no", "yes"))], missing=[""])


def test_a_third_class_that_may_be_a_marker_names_the_remedy(here):
    (here / "t.csv").write_text(table_of(["no", "yes", "NA"]))
    with pytest.raises(DataError) as caught:
        read("t.csv", tasks={"stage": "binary"})
    assert str(caught.value) == (
        "task 'stage', line 4 of t.csv (client 'w'): label 'NA' is a third class after 'no' and 'yes'; declare the task "
        "multiclass or correct the label; if 'NA' means that there is no label, name it in missing (--missing)."
    )


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["0", "1", "0"], (0, 1)),
        (["0.0", "1.0", ""], (0, 1)),
        ([" 0", "1", "1"], (0, 1)),
        (["1.5", "2", "2.25"], (1.5, 2.0, 2.25)),
        (["True", "False", ""], (False, True)),
        (["true", "false", "true"], (False, True)),
        (["01", "1", "1.0"], ("01", "1", "1.0")),
        (["1e0", "1", "2"], ("1", "1e0", "2")),
        (["01", "02", "01"], ("01", "02")),
        (["-1", "1", "1"], (-1, 1)),
        (["9" * 5000, "1", "2"], ("1", "2", "9" * 5000)),
        (["inf", "1", "2"], ("1", "2", "inf")),
    ],
)
def test_labels_that_are_numbers_are_numbers_and_others_are_not(here, cells, classes):
    (here / "t.csv").write_text(table_of(cells))
    study = read("t.csv", split=Split(test=0.0)).prepare(0)
    found = study.agreed.codecs["stage"].classes
    assert found == classes
    assert [type(label) for label in found] == [type(label) for label in classes]


def test_every_client_of_a_run_names_known_classes():
    """A file of one client alone may look like numbers, or booleans, where the classes are known to be texts."""
    assert as_labels(["1", "2"], classes=("1", "2", "x")).tolist() == ["1", "2"]
    assert as_labels(["1.0", "2"], classes=(1, 2)).tolist() == [1, 2]
    assert as_labels(["TRUE", None], classes=(False, True)).tolist() == [True, None]
    assert as_labels(["NA"], classes=(1, 2)).tolist() == [None]
    assert as_labels(["NA"], classes=(1, 2), lenient=False).tolist() == ["NA"]
    assert as_labels(["NA"], classes=("NA", "x")).tolist() == ["NA"]


def test_targets_that_are_numbers_have_the_usual_gaps(here):
    (here / "t.csv").write_text(table_of(["1", "NA", "", "None", "-999", "3"], "pulse"))
    assert read("t.csv", tasks={"pulse": "regression"}).raw["w"].labels["pulse"].values.tolist() == [1, -999, 3]
    fed = read("t.csv", tasks={"pulse": "regression"}, missing=["-999"])
    assert fed.raw["w"].labels["pulse"].values.tolist() == [1, 3]


def test_a_derived_column_sees_numbers_in_labels(here):
    (here / "t.csv").write_text(table_of(["0", "1", "", "3"]))
    fed = read("t.csv", tasks={"stage": "multiclass", "ill": "binary"}, derive={"ill": "stage > 0"}, features=["age"])
    assert fed.raw["w"].labels["ill"].at.tolist() == [0, 1, 3]
    assert vocabulary(fed, "ill") == {False, True}


# ---- names of clients --------------------------------------------------------------------------------------------


def test_clients_are_told_apart_as_they_are_written(here):
    names = ["1", "01", "1.0", "1e0", "NA", "None", "nan", "True", "mean", "std"]
    (here / "t.csv").write_text("ward,age,pulse\n" + "".join(f"{name},{i},{i}\n" for i, name in enumerate(names)))
    fed = read("t.csv", tasks={"pulse": "regression"})
    assert set(fed.names) == set(names)
    assert {name: raw.features.numbers[0, 0] for name, raw in fed.raw.items()} == dict(
        zip(names, range(10), strict=True)
    )


def test_a_row_of_nobody_is_rejected_in_every_spelling(here):
    (here / "t.csv").write_text("ward,age,pulse\na,1,2\n?,1,2\n")
    with pytest.raises(DataError, match=r"line 3 of t.csv: column 'ward' is empty"):
        read("t.csv", tasks={"pulse": "regression"}, missing=["?"])
    (here / "t.csv").write_text("ward,age,pulse\na,1,2\n  ,1,2\n")
    with pytest.raises(DataError, match=r"line 3 of t.csv: column 'ward' is empty"):
        read("t.csv", tasks={"pulse": "regression"}, missing=[])


def test_one_name_in_two_types_is_rejected():
    frame = pd.DataFrame({"ward": ["1", 1, "2"], "age": [1, 2, 3], "pulse": [1, 2, 3]})
    with pytest.raises(DataError) as caught:
        read(frame, tasks={"pulse": "regression"})
    assert str(caught.value) == (
        "row 1: client '1' is written in two ways, as '1' and as 1; make the column text, or numbers, throughout."
    )


def test_a_column_of_lists_names_no_client(here):
    pd.DataFrame({"ward": [["a"], ["b"]], "age": [1, 2], "pulse": [1, 2]}).to_parquet(here / "t.parquet")
    with pytest.raises(DataError) as caught:
        read("t.parquet", tasks={"pulse": "regression"})
    assert str(caught.value).startswith("row 0 of t.parquet: column 'ward' holds a ")
    assert str(caught.value).endswith("which is no name of a client; give each row the name of one client.")


# ---- other files and types ---------------------------------------------------------------------------------------


def test_a_compressed_file_is_read_as_if_it_were_not(here):
    text = table_of(["a", "b", "NA"]).replace("w,0", "01,0").encode()
    (here / "t.csv.gz").write_bytes(gzip.compress(text))
    with pytest.warns(UserWarning, match="'NA' is taken for a class"):
        fed = read("t.csv.gz")
    assert fed.names == ("01", "w")
    (here / "d").mkdir()
    (here / "d" / "basel.csv.gz").write_bytes(gzip.compress(b"age,stage\n1,a\n2,b\n"))
    assert read("d", client=None).names == ("basel",)
    (here / "d" / "basel.csv").write_bytes(b"age,stage\n1,a\n2,b\n")
    with pytest.raises(DataError, match="two files are of client 'basel'"):
        read("d", client=None)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", gzip.compress(b"ward,age,stage\na,1,x\n"), "t.csv: is compressed; let its name end in .csv.gz."),
        ("t.csv.gz", gzip.compress(b"ward,age\n" * 99)[:25], "t.csv.gz: cannot be uncompressed: Compressed file ended"),
        ("t.csv.gz", b"ward,age,stage\na,1,x\n", "t.csv.gz: cannot be uncompressed: Not a gzipped file"),
        ("t.csv.gz", gzip.compress(b"ward,age,stage\n\xff,1,x\n"), "line 2 of t.csv.gz: is not UTF-8 text"),
    ],
    ids=["unsaid", "cut off", "not at all", "not text"],
)
def test_compressed_files_that_cannot_be_read(here, name, content, said):
    (here / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(name)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_a_table_with_types_has_gaps_of_its_own(here, kind):
    frame = pd.DataFrame({"ward": ["w"] * 5, "age": range(5), "stage": ["a", "", "NA", None, "b"]})
    frame.to_parquet(here / "t.parquet")
    source = frame if kind == "frame" else "t.parquet"
    assert vocabulary(read(source)) == {"a", "", "NA", "b"}  # said by the table itself: nobody need be warned
    assert vocabulary(read(source, missing=["", "NA"])) == {"a", "b"}
    assert frame["stage"].tolist()[1:3] == ["", "NA"]  # the user's own table stays as it is


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pd.Categorical(["b", "a", None, "b"], categories=["c", "b", "a"]), ("a", "b")),
        (pd.array(["b", "a", pd.NA, "b"], dtype="string"), ("a", "b")),
        (pd.array([2, 1, pd.NA, 2], dtype="Int64"), (1, 2)),
        (pd.array([True, False, pd.NA, True], dtype="boolean"), (False, True)),
        (np.array([2, 1, 2, 2], dtype=np.uint64), (1, 2)),
        (np.array([2, 1, np.nan, 2], dtype=np.float16), (1, 2)),
        (pd.Categorical([2, 1, None, 2]), (1, 2)),
        ([b"b", b"a", None, b"b"], ("a", "b")),
    ],
)
@pytest.mark.parametrize("missing", [None, ["NA"]])
def test_types_of_labels(here, values, classes, missing):
    frame = pd.DataFrame({"ward": ["w"] * 4, "age": range(4), "stage": values})
    study = read(frame, split=Split(test=0.0), missing=missing).prepare(0)
    assert study.agreed.codecs["stage"].classes == classes


@pytest.mark.parametrize(
    "names",
    [
        pd.Categorical(["01", "1", "01"]),
        pd.array(["01", "1", "01"], dtype="string"),
        [b"01", b"1", b"01"],
    ],
)
def test_types_of_names(names):
    frame = pd.DataFrame({"ward": names, "age": [1, 2, 3], "pulse": [1, 2, 3]})
    assert read(frame, tasks={"pulse": "regression"}).names == ("01", "1")


def test_decimals_are_rejected_as_classes_and_taken_as_targets(here):
    frame = pd.DataFrame({"ward": ["w"] * 2, "age": [1, 2], "stage": [Decimal(1), Decimal(2)]})
    with pytest.raises(DataError, match=r"label Decimal\('1'\) is a Decimal"):
        read(frame)
    assert read(frame, tasks={"stage": "regression"}).raw["w"].labels["stage"].values.tolist() == [1, 2]


@pytest.mark.parametrize("given", ["NA", ["NA", 1], 5])
def test_markers_are_texts(given):
    with pytest.raises(ConfigError, match="give a list of texts such as"):
        checked_missing(given)
