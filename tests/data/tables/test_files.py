"""Files as people have them: compressed, with other separators and decimals, patterns, Excel, Feather, databases."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sqlite3
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from polyfed.data import Federation
from polyfed.data.tables.files import load_table
from polyfed.errors import ConfigError, DataError, MissingExtraError

TABLE = pd.DataFrame(
    {"ward": ["a", "b", "a"], "age": [50.5, 1234.25, -3.0], "name": ["x, y", "z", None], "pulse": [1, 2, 3]}
)
TEXT = TABLE.to_csv(index=False)
PACKED = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(table):
    pd.testing.assert_frame_equal(table.frame.reset_index(drop=True), TABLE, check_dtype=False)


def rejection(source, kind=DataError, **options):
    with pytest.raises(kind) as caught:
        load_table(source, **options)
    return str(caught.value)


@pytest.mark.parametrize("ending", PACKED)
def test_compressed(here, ending):
    (here / f"t.csv{ending}").write_bytes(PACKED[ending](TEXT.encode()))
    check(load_table(f"t.csv{ending}"))


@pytest.mark.parametrize("ending", PACKED)
def test_damaged_or_falsely_named(here, ending):
    whole = PACKED[ending](TEXT.encode() * 100)
    for damaged in (whole[: len(whole) // 2], b"ward,age\n", b"\0" * 40 if ending != ".zst" else whole[:10]):
        (here / f"t.csv{ending}").write_bytes(damaged)
        text = rejection(f"t.csv{ending}")
        assert text.startswith(f"t.csv{ending}: cannot be uncompressed: ")
        assert text.endswith("; compress the file anew.")
    (here / "t.csv").write_bytes(whole)
    assert rejection("t.csv") == f"t.csv: is compressed; let its name end in .csv{ending}."


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", ";"), ("t.csv", "|"), ("t.csv", "\t"), ("t.tsv", "\t"), ("t.tsv", ";")]
)
@pytest.mark.parametrize("decimal", [".", ","])
def test_separators_and_decimals(here, name, separator, decimal):
    TABLE.to_csv(name, sep=separator, decimal=decimal, index=False)
    check(load_table(name))


def test_thousands_with_points(here):
    (here / "t.csv").write_text("ward;age;day\na;1.234,5;01.02.2024\nb;1.000;13.02.2024\nc;0,25;14.02.2024\n")
    frame = load_table("t.csv").frame
    assert frame["age"].tolist() == [1234.5, 1000.0, 0.25]
    assert frame["day"].tolist()[0] == "01.02.2024"


def test_classes_and_clients_are_what_is_written(here):
    (here / "t.csv").write_text("ward;stage;age\n1,5;2,0;3,5\n01;1,0;4,5\n")
    frame = load_table("t.csv", written=["ward", "stage"]).frame
    assert (frame["ward"].tolist(), frame["stage"].tolist()) == (["1,5", "01"], ["2,0", "1,0"])
    assert frame["age"].tolist() == [3.5, 4.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ward;age;dose\na;1,5;2.5\nb;2,5;3.5\n",
            "line 2 of t.csv, column 'dose': 2.5 has a decimal point, but other numbers of the file have decimal commas",
        ),
        (
            "ward;age;dose\na;1,5;2,5\nb;2,5;3.5\n",
            "line 3 of t.csv, column 'dose': 3.5 has a decimal point, but other numbers of the file have decimal commas",
        ),
    ],
)
def test_decimals_in_two_ways(here, text, said):
    (here / "t.csv").write_text(text)
    assert rejection("t.csv") == f"{said}; write all of them in one way."


def test_a_slip_of_the_pen_among_decimal_commas(here):
    (here / "t.csv").write_text("ward;age\n" + "a;1,5\n" * 20 + "b;1,5x\n")
    assert rejection("t.csv") == (
        "line 22 of t.csv, column 'age': '1,5x' stands among numbers; correct it, leave it empty, or drop the column."
    )
    (here / "t.csv").write_text("ward;remark\n" + "a;well, x\n" * 20 + "b;1,5\n")
    assert load_table("t.csv").frame["remark"].tolist()[-1] == "1,5"


# Several files


def test_a_pattern_is_one_table(here):
    for i in range(3):
        TABLE.iloc[[i]].to_csv(f"part{i}.csv", index=False)
    check(load_table("part*.csv"))
    fed = Federation.from_table("part?.csv", client="ward", tasks={"pulse": "regression"}, features=["age"])
    assert {name: len(raw) for name, raw in fed.raw.items()} == {"a": 2, "b": 1}
    (here / "part1.csv").write_text("ward,age,name,pulse\nb,inf,z,2\n")
    with pytest.raises(DataError, match=r"line 2 of part1.csv \(client 'b'\), column 'age': value inf is not finite"):
        Federation.from_table("part?.csv", client="ward", tasks={"pulse": "regression"}, features=["age"])


def test_without_a_client_each_file_of_a_pattern_is_one(here):
    for ward, rows in TABLE.groupby("ward"):
        rows.drop(columns="ward").to_csv(f"{ward}.csv", index=False)
    (here / "c.txt").write_text("no table")
    fed = Federation.from_table("[a-c].*", tasks={"pulse": "regression"}, features=["age"])
    assert {name: len(raw) for name, raw in fed.raw.items()} == {"a": 2, "b": 1}


def test_a_name_with_a_star_is_a_name(here):
    (here / "t[1].csv").write_text(TEXT)
    check(load_table("t[1].csv"))


def test_patterns_that_match_nothing_or_different_things(here):
    assert rejection("*.csv") == "*.csv: no table matches; correct the pattern."
    TABLE.to_csv("p1.csv", index=False)
    TABLE.drop(columns="age").to_csv("p2.csv", index=False)
    assert rejection("p*.csv") == "p2.csv: lacks column 'age', which p1.csv has; give all files the same columns."
    TABLE.to_parquet("p2.parquet")
    (here / "p2.csv").unlink()
    assert rejection("p*") == "p*: matches files of text and others; choose files of one kind."


# Other kinds


def test_feather(here):
    TABLE.to_feather("t.feather")
    check(load_table("t.feather"))
    (here / "t.feather").write_bytes(b"nonsense")
    assert rejection("t.feather").startswith("t.feather: cannot be read as Feather: ")


def test_excel(here):
    pytest.importorskip("openpyxl", reason="Excel files need openpyxl")
    TABLE.to_excel("t.xlsx", index=False)
    check(load_table("t.xlsx"))
    with pd.ExcelWriter("t.xlsx") as book:
        TABLE.to_excel(book, sheet_name="rows", index=False)
        TABLE.to_excel(book, sheet_name="more", index=False)
    with pytest.warns(UserWarning, match="has 2 sheets; the first, 'rows', is read"):
        check(load_table("t.xlsx"))
    (here / "t.xlsx").write_bytes(b"nonsense")
    assert rejection("t.xlsx").startswith("t.xlsx: cannot be read as Excel: ")


@pytest.mark.parametrize(
    ("name", "package", "text"),
    [
        ("t.xlsx", "openpyxl", "t.xlsx: Excel files need openpyxl; pip install 'polyfed[tables]'."),
        ("t.duckdb", "duckdb", "t.duckdb: databases of DuckDB need duckdb; pip install 'polyfed[tables]'."),
    ],
)
def test_a_missing_package_is_named(here, monkeypatch, name, package, text):
    monkeypatch.setitem(sys.modules, package, None)
    (here / name).write_bytes(b"PK\3\4")
    assert rejection(name, MissingExtraError) == text


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request, here):
    if request.param == "sqlite":
        connection = sqlite3.connect("t.sqlite")
        connection.execute("CREATE TABLE visits (ward TEXT, age REAL, name TEXT, pulse INTEGER)")
        connection.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?)", TABLE.astype(object).replace({np.nan: None}).values.tolist()
        )
        connection.commit()
        connection.close()
    else:
        duckdb = pytest.importorskip("duckdb", reason="databases of DuckDB need duckdb")
        with duckdb.connect("t.duckdb") as connection:
            connection.register("given", TABLE)
            connection.execute("CREATE TABLE visits AS SELECT * FROM given")
    return f"t.{request.param}"


def test_the_only_table_of_a_database(database):
    check(load_table(database))


def test_a_query(database):
    found = load_table(database, query="SELECT ward, avg(age) AS age FROM visits GROUP BY ward ORDER BY ward").frame
    assert found.to_numpy().tolist() == [["a", 23.75], ["b", 1234.25]]
    fed = Federation.from_table(
        database, client="ward", tasks={"pulse": "regression"}, query="SELECT ward, age, pulse FROM visits"
    )
    assert fed.names == ("a", "b")


@pytest.mark.parametrize(
    "query",
    [
        "SELEC * FROM visits", "SELECT * FROM nothing", "DROP TABLE visits", "DELETE FROM visits",
        "INSERT INTO visits VALUES ('c', 1, 'x', 2)", "ATTACH 'other.db' AS other", "SELECT nothing FROM visits",
        "CREATE TABLE more (a INTEGER)",
    ],
)  # fmt: skip
def test_a_query_that_fails_or_does_more_than_reading(database, query, here):
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    text = rejection(database, query=query)
    assert text.startswith(f"{database}: the query fails: ")
    assert text.endswith("; correct it: it may only read (SELECT ...).")
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before
    assert rejection(database, ConfigError, query=" ").startswith(f"{database}: the query is empty; ")


def test_databases_that_are_none(here, database):
    (here / database).write_bytes(b"nonsense" * 500)
    assert rejection(database).endswith(", or damaged; write it anew.")
    (here / "t.csv").write_text(TEXT)
    assert rejection("t.csv", ConfigError, query="SELECT 1") == (
        "query is given, but t.csv is no database; leave it out, or give a database."
    )


def test_several_tables(here):
    connection = sqlite3.connect("t.db")
    assert rejection("t.db") == "t.db: has no table; say with a query what is to be read (--query)."
    connection.execute("CREATE TABLE a (x REAL)")
    connection.execute("CREATE VIEW b AS SELECT * FROM a")
    connection.close()
    assert rejection("t.db") == "t.db: has 2 tables (a, b); say with a query what is to be read (--query)."
