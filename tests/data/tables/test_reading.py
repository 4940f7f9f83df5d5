"""Tables and files: which columns are what, lines in errors, folders of clients, and broken files."""

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, Split, Task
from polyfed.errors import ConfigError, DataError

PULSE = {"pulse": "regression"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # so that errors name files by short paths

    def write(text, name="t.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def federation(source, **options):
    return Federation.from_table(source, **{"client": "ward", "tasks": PULSE, "scaling": "none", **options})


def rejection(source, kind=DataError, **options):
    with pytest.raises(kind) as caught:
        federation(source, **options)
    return str(caught.value)


TABLE = pd.DataFrame(
    {
        "ward": ["b", "a", "b", "a"],
        "age": [50, 60, 70, 80],
        "sex": ["m", None, "f", "m"],
        "pulse": [65.0, None, 75.0, 85.0],
        "sick": ["no", "yes", None, "yes"],
    }
)
TWO = {"pulse": "regression", "sick": "binary"}


def check_table(fed):
    assert fed.names == ("a", "b")
    parts = fed.with_options(split=Split(test=0.0)).prepare(0)
    assert parts.encoders["a"].names == ("age", "sex=f", "sex=m", "sex is missing")
    a, b = parts.clients["a"].train, parts.clients["b"].train
    assert a.x.tolist() == [[60, 0, 0, 1], [80, 0, 1, 0]]
    assert b.x.tolist() == [[50, 0, 1, 0], [70, 1, 0, 0]]
    assert [part.tolist() for part in a.labels["pulse"]] == [[1], [85.0]]
    assert [part.tolist() for part in b.labels["sick"]] == [[0], [-1.0]]
    assert [part.tolist() for part in a.labels["sick"]] == [[0, 1], [1.0, 1.0]]


def test_a_frame():
    check_table(federation(TABLE, tasks=TWO))


def test_a_frame_with_an_odd_index():
    check_table(federation(TABLE.set_axis([7, 7, 1, 0]), tasks=TWO))


def test_a_csv_file(tmp_path):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    check_table(federation(tmp_path / "t.csv", tasks=TWO))
    check_table(federation(str(tmp_path / "t.csv"), tasks=TWO))


def test_a_parquet_file(tmp_path):
    TABLE.to_parquet(tmp_path / "t.parquet")
    check_table(federation(tmp_path / "t.parquet", tasks=TWO))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder(tmp_path, ending):
    for ward, rows in TABLE.groupby("ward"):
        rows = rows.drop(columns="ward")
        path = tmp_path / f"{ward}.{ending}"
        _ = rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path)
    (tmp_path / "notes.txt").write_text("not a client")
    check_table(federation(tmp_path, client=None, tasks=TWO))


def test_each_client_knows_its_own_classes_only():
    fed = federation(TABLE.assign(sick=["no", "yes", "no", "yes"]), tasks=TWO)
    assert {name: raw.labels["sick"].vocabulary for name, raw in fed.raw.items()} == {"a": ("yes",), "b": ("no",)}


@pytest.mark.parametrize(
    "names", [[1, 2, 1, 2], [1.0, 2.0, 1.0, 2.0], ["1", "2", "1", "2"], pd.Categorical([1, 2, 1, 2])]
)
def test_numbers_as_names_of_clients(names):
    assert federation(TABLE.assign(ward=names), tasks=TWO).names == ("1", "2")


def test_choice_of_features():
    def names(**options):
        return federation(TABLE, **options).raw["a"].features.names

    assert names(features=["age"], tasks=TWO) == ("age",)
    assert names(features="age", tasks=TWO) == ("age",)
    assert names(drop=["sex"], tasks=TWO) == ("age",)
    assert names(drop="sick") == ("age", "sex")
    assert names(features=["sick", "age"]) == ("sick", "age")


def test_proportions_take_two_columns():
    table = pd.DataFrame({"ward": ["a", "a"], "age": [1, 2], "cured": [3, None], "treated": [10, 4]})
    fed = federation(table, tasks=[Task("cured/treated", "proportion")])
    assert fed.raw["a"].features.names == ("age",)
    labels = fed.raw["a"].labels["cured/treated"]
    assert (labels.at.tolist(), labels.values.tolist()) == ([0], [[3.0, 10.0]])
    slashed = table.rename(columns={"cured": "a/b", "treated": "c"})
    assert list(federation(slashed, tasks=[Task("a/b/c", "proportion")]).raw["a"].labels) == ["a/b/c"]


def test_a_text_column_may_be_empty_at_one_client(write):
    write("age,sex,pulse\n1,m,60\n2,f,70\n", "d/a.csv")
    write("age,sex,pulse\n3,,80\n4,,90\n", "d/b.csv")
    study = federation("d", client=None, split=Split(test=0.0)).prepare(0)
    assert study.encoders["a"].names == ("age", "sex=f", "sex=m", "sex is missing")
    assert study.clients["b"].train.x.tolist() == [[3, 0, 0, 1], [4, 0, 0, 1]]


def test_a_client_in_a_folder_may_lack_a_task(write):
    write("age,pulse\n1,60\n", "d/a.csv")
    write("age\n1\n", "d/b.csv")
    assert list(federation("d", client=None).raw["b"].labels) == []


def test_booleans_are_numbers(write):
    fed = federation(write("ward,ill,pulse\na,True,1\na,,2\na,False,3\n"), split=Split(test=0.0))
    assert fed.prepare(0).clients["a"].train.x.tolist() == [[1, 0], [0, 1], [0, 0]]


def test_many_clients_keep_their_rows():
    rng = np.random.default_rng(0)
    ward, age = rng.integers(0, 300, 5000), np.arange(5000.0)
    pulse = np.where(rng.random(5000) < 0.3, np.nan, 1000 + age)
    fed = federation(pd.DataFrame({"ward": ward, "age": age, "pulse": pulse}))
    for name, raw in fed.raw.items():
        rows = np.flatnonzero(ward == int(name))
        assert raw.features.numbers[:, 0].tolist() == rows.tolist()
        seen = rows[~np.isnan(pulse[rows])]
        assert rows[raw.labels["pulse"].at].tolist() == seen.tolist()
        assert raw.labels["pulse"].values.tolist() == (1000.0 + seen).tolist()


# Errors about columns


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"client": "wrad"},
            DataError,
            "table: has no column 'wrad'; did you mean 'ward'? known are 'ward', 'age', 'sex', 'pulse', 'sick'.",
        ),
        (
            {"client": None},
            ConfigError,
            "table: which column says whose row it is?; give client=..., one of ['ward', 'age', 'sex', 'pulse', 'sick'].",
        ),
        (
            {"tasks": {"puls": "regression"}},
            DataError,
            "table: task 'puls' has no column; did you mean 'pulse'? known are 'ward', 'age', 'sex', 'pulse', 'sick'.",
        ),
        (
            {"features": ["agee"]},
            DataError,
            "table: has no column 'agee'; did you mean 'age'? known are 'ward', 'age', 'sex', 'pulse', 'sick'.",
        ),
        (
            {"drop": ["sx"]},
            DataError,
            "table: has no column 'sx'; did you mean 'sex'? known are 'ward', 'age', 'sex', 'pulse', 'sick'.",
        ),
        (
            {"features": ["pulse"]},
            ConfigError,
            "table: column 'pulse' cannot be a feature: task 'pulse' is to predict it; leave it out of features.",
        ),
        ({"features": []}, DataError, "table: no column is left for features; give at least one."),
        ({"drop": ["age", "sex", "sick"]}, DataError, "table: no column is left for features; give at least one."),
        (
            {"tasks": {"sick": "proportion"}},
            ConfigError,
            "proportion task 'sick' does not say its two columns; "
            "call it 'k/n' after the columns of successes and trials.",
        ),
        (
            {"tasks": {"age/pulses": "proportion"}},
            DataError,
            "table: task 'age/pulses' has no column 'pulses'; "
            "did you mean 'pulse'? known are 'ward', 'age', 'sex', 'pulse', 'sick'.",
        ),
    ],
)
def test_columns_that_are_not_there(options, kind, text):
    assert rejection(TABLE, kind, **options) == text


def test_a_row_of_nobody():
    assert rejection(TABLE.assign(ward=["a", "b", None, "a"])) == (
        "row 2: column 'ward' is empty; say whose row it is, or drop the row."
    )


def test_rows_of_a_frame_are_named_as_in_the_whole_table():
    table = TABLE.assign(pulse=[1.0, 2.0, 3.0, float("inf")]).set_axis(["p", "q", "r", "s"])
    assert rejection(table) == (
        "task 'pulse', row 3 (index 's') (client 'a'): label inf is not finite; correct it or mark it missing with NaN."
    )


def test_something_that_is_no_table():
    assert rejection([1, 2]) == "table: is a list; give a DataFrame or a path."
    assert rejection(TABLE[:0]) == "table: has no rows; give at least one."


# Errors about files

HEADER = "ward,age,pulse\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv: has no header; begin the file with the names of columns."),
        ("\n", "t.csv: has no header; begin the file with the names of columns."),
        (HEADER, "t.csv: has no rows; give at least one."),
        (
            HEADER + "a,1,60\nb,2,3,4\n",
            "t.csv: cannot be read as CSV: Expected 3 fields in line 3, saw 4; "
            "correct the line, and quote fields that contain commas.",
        ),
        (HEADER + "a,1,60,7\nb,2,3,4\n", "t.csv: has rows longer than its header; name every column."),
        (
            HEADER + 'a,"1,60\nb,2,3\n',
            "t.csv: cannot be read as CSV: EOF inside string starting at row 1; "
            "correct the line, and quote fields that contain commas.",
        ),
        ("ward,age,age,pulse\na,1,2,60\n", "t.csv: column 'age' appears twice; rename or drop one of them."),
        (
            "ward,,pulse\na,1,60\n",
            "t.csv: column 1 has no name in the first line; begin the file with a header that names every column.",
        ),
        (
            (HEADER + "a,1,60\nb,").encode() + b"\xff,70\n",
            "line 3 of t.csv: is not UTF-8 text; save the file in UTF-8.",
        ),
        (HEADER + "a,1,60\n,2,70\n", "line 3 of t.csv: column 'ward' is empty; say whose row it is, or drop the row."),
        (
            HEADER + "a,1,60\n\nb,2,high\n",
            "task 'pulse', line 4 of t.csv (client 'b'): label 'high' is not a number; correct it or drop the row.",
        ),
        (
            HEADER.replace("\n", "\r\n") + "a,1,60\r\n\r\nb,2,high\r\n",
            "task 'pulse', line 4 of t.csv (client 'b'): label 'high' is not a number; correct it or drop the row.",
        ),
        (
            'ward,age,note,pulse\na,1,"two\nlines",60\nb,2,one,high\n',
            "task 'pulse', line 4 of t.csv (client 'b'): label 'high' is not a number; correct it or drop the row.",
        ),
        (
            HEADER + "a,1,60\nb,inf,70\n",
            "line 3 of t.csv (client 'b'), column 'age': value inf is not finite; "
            "correct it or mark it missing with NaN.",
        ),
        (
            HEADER + "a,1,60\n" * 19 + "b,12o,70\n",
            "line 21 of t.csv (client 'b'), column 'age': '12o' stands among numbers; "
            "correct it, leave it empty, or drop the column.",
        ),
        (
            "ward,day,pulse\na,2024-01-02,60\nb,2024-01-33 12:30,70\n",
            "line 3 of t.csv (client 'b'), column 'day': '2024-01-33 12:30' is no date; "
            "correct it as YYYY-MM-DD, leave it empty, or drop the column.",
        ),
    ],
)
def test_broken_csv(write, text, said):
    assert rejection(write(text)) == said


def test_a_file_from_a_spreadsheet_begins_with_a_mark(write):
    assert federation(write("\ufeff" + HEADER + "a,1,60\n,,\n")).names == ("a",)  # and ends with an empty row


def test_missing_and_foreign_files(write):
    assert rejection("nowhere.csv") == "nowhere.csv: there is no such file; correct the path."
    write("x", "t.ods")
    assert rejection("t.ods") == (
        "t.ods: is not a kind of table that can be read; give a .csv, .tsv (also .gz, .bz2, .xz, .zst), .parquet, .feather, "
        ".xlsx, .sqlite or .duckdb file."
    )
    write("junk", "t.parquet")
    assert rejection("t.parquet").startswith("t.parquet: cannot be read as Parquet: ")
    assert rejection("t.parquet").endswith("; write the file anew.")


def test_folders_that_cannot_be_used(write, tmp_path):
    (tmp_path / "d").mkdir()
    assert rejection("d", client=None) == (
        "d: has no table in it; put one .csv, .csv.gz or .parquet file for each client there."
    )
    write("age,pulse\n1,60\n", "d/a.csv")
    assert rejection("d", ConfigError) == (
        "d: client='ward', but in a folder the names of the files are the clients; leave client out."
    )
    assert rejection("d", client=None, tasks={"puls": "regression"}) == (
        "d: task 'puls' has no column; did you mean 'pulse'? known are 'age', 'pulse'."
    )
    assert rejection("d", client=None, drop=["agee"]) == (
        "d: has no column 'agee'; did you mean 'age'? known are 'age', 'pulse'."
    )
    write("age,pulse\n1,60\n2,high\n", "d/b.csv")
    assert rejection("d", client=None) == (
        "client 'b', task 'pulse', line 3 of b.csv: label 'high' is not a number; correct it or drop the row."
    )
    write("", "d/b.csv")
    assert rejection("d", client=None) == (
        "client 'b', d/b.csv: has no header; begin the file with the names of columns."
    )
    (tmp_path / "d" / "b.csv").unlink()
    pd.DataFrame({"age": [1], "pulse": [2]}).to_parquet(tmp_path / "d" / "a.parquet")
    assert rejection("d", client=None) == "d: two files are of client 'a'; keep one of them."
