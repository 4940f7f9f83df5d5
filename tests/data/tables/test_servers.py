"""Tables behind the URL of a database: what is read, that nothing is written, and that no secret is ever shown."""

from __future__ import annotations

import sqlite3
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation
from polyfed.data.tables.files import load_table, stem_of
from polyfed.data.tables.servers import _frame, _shown
from polyfed.errors import ConfigError, DataError, MissingExtraError, PolyfedError

TABLE = pd.DataFrame({"ward": [*"aabb"], "age": [50.5, 60.0, None, 80.0], "pulse": [70, 60, 65, 80]})
SECRET = "hunter:2/@?"


@pytest.fixture
def clinic(tmp_path):
    """The URL of a database with one table."""
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        TABLE.to_sql("patients", connection, index=False)
    connection.close()
    return f"sqlite:///{tmp_path}/clinic.db"


def test_the_only_table_or_what_a_query_finds(clinic):
    pd.testing.assert_frame_equal(load_table(clinic).frame, TABLE)
    found = load_table(clinic, query="-- those of a ward\nSELECT age AS years FROM patients WHERE ward || ':' = 'a:'")
    assert found.frame["years"].tolist() == [50.5, 60.0]
    assert stem_of(clinic) == "clinic"
    fed = Federation.from_table(clinic, client="ward", tasks={"pulse": "regression"})
    assert fed.names == ("a", "b")


def test_variables_stand_for_what_is_secret(clinic, tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    assert len(load_table("sqlite:///${FOLDER}/clinic.db").frame) == 4
    monkeypatch.delenv("FOLDER")
    assert says("sqlite:///${FOLDER}/clinic.db") == (
        "sqlite:///${FOLDER}/clinic.db: environment variable FOLDER is not set; set it."
    )


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM patients",
        "WITH x AS (SELECT 1) DELETE FROM patients",
        "SELECT 1; DELETE FROM patients",
        "PRAGMA user_version = 3",
        "/* SELECT */ DROP TABLE patients",
    ],
)
def test_a_query_may_only_read(clinic, query):
    with pytest.raises(DataError, match="the query fails: "):
        load_table(clinic, query=query)
    assert len(load_table(clinic).frame) == 4


def says(url, query=None, kind=PolyfedError):
    with pytest.raises(kind) as caught:
        load_table(url, query=query)
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://reader:hunter2@db.example.org/clinic",
        "postgresql://reader:x${A}hunter2@db.example.org/clinic",
        "postgresql://db.example.org/clinic?user=me&password=hunter2",
        "snowflake://db.example.org/clinic?private_key=hunter2",
    ],
)
def test_a_password_is_rejected_and_not_repeated(url):
    text = says(url, kind=ConfigError)
    assert text == (
        f"{url.partition(':')[0]}://db.example.org/clinic: there is a password in this URL; "
        "write ${PASSWORD} in its place, in single quotes, and set the environment variable PASSWORD."
    )


def test_what_a_server_says_is_shown_without_secrets(monkeypatch):
    monkeypatch.setenv("PASSWORD", SECRET)
    url = "postgresql://reader:${PASSWORD}@h/clinic"
    reported = _shown(ValueError(f"no login with {SECRET} or hunter%3A2%2F%40%3F"), url, "cannot be reached")
    assert str(reported) == (
        f"{url}: cannot be reached: no login with ${{PASSWORD}} or ${{PASSWORD}}; "
        "correct the query (it may only read), or the URL."
    )


def test_what_cannot_be_read(clinic, tmp_path, monkeypatch):
    gone = f"sqlite:///{tmp_path}/gone.db"
    assert says(gone) == f"{gone}: there is no such file; correct the path."
    assert not (tmp_path / "gone.db").exists()
    assert says(clinic, query=" ") == f"{clinic}: the query is empty; write for example SELECT * FROM patients."
    assert "no such column: nought" in says(clinic, query="SELECT nought FROM patients")
    with sqlite3.connect(tmp_path / "clinic.db") as connection:
        TABLE.to_sql("more", connection, index=False)
    connection.close()
    assert says(clinic) == f"{clinic}: has 2 tables (more, patients); say with a query what is to be read (--query)."
    assert says("nosql://h/clinic") == (
        "nosql://h/clinic: databases of 'nosql' are not known; name one that SQLAlchemy knows, for example postgresql://."
    )
    assert says("http://[h/clinic").startswith("the URL of the database cannot be read; ")
    (tmp_path / "text.db").write_text("no database at all, but a text that is long enough to be looked at")
    assert "file is not a database" in says(f"sqlite:///{tmp_path}/text.db")
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    assert says("postgresql+psycopg2://h/clinic", kind=MissingExtraError) == (
        "postgresql+psycopg2://h/clinic: this database needs psycopg2; pip install psycopg2, or name another driver."
    )
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert says(clinic, kind=MissingExtraError) == (
        f"{clinic}: database servers need SQLAlchemy; pip install 'polyfed[tables]'."
    )


def test_exact_decimals_are_numbers():
    frame = _frame([(Decimal("1.5"), "x"), (None, Decimal(2))], ["paid", "mixed"])
    assert frame["paid"].dtype == np.float64
    assert frame["mixed"].dtype == object
