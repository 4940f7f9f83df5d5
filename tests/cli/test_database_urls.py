"""A run, a guess and an error with a database's URL: what its variables hold is nowhere to be read afterwards."""

from __future__ import annotations

import sqlite3

import pandas as pd
import pytest

SECRET = "hunter2"
URL = "sqlite:///${VAULT}/clinic.db"
TASKS = ("--client", "ward", "--regression", "pulse")


@pytest.fixture
def vault(tmp_path_factory, monkeypatch):
    """A folder whose name is the secret, with a database in it; the variable VAULT holds it."""
    folder = tmp_path_factory.mktemp("outside") / SECRET
    folder.mkdir()
    rows = pd.DataFrame({"ward": [*"ab"] * 8, "age": range(40, 56), "pulse": range(60, 76)})
    with sqlite3.connect(folder / "clinic.db") as connection:
        rows.to_sql("patients", connection, index=False)
    connection.close()
    monkeypatch.setenv("VAULT", str(folder))


def written(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("vault")
def test_no_secret_is_written_or_said(polyfed, home):
    query = "SELECT * FROM patients WHERE age < 54"
    done = polyfed("run", "--data", URL, "--query", query, *TASKS, "--rounds", "2", "--out", "x")
    assert done.code == 0
    again = polyfed("run", "--resume", "x", "--rounds", "3")
    assert again.code == 0
    assert URL.encode() in (home / "x" / "config.toml").read_bytes()
    guessed = polyfed("init", URL, "--out", "guess.toml")
    assert guessed.code == 0
    failed = polyfed("run", "--data", URL, "--query", "SELECT nought FROM patients", *TASKS, "--out", "y")
    assert failed.code == 4
    said = "".join(one.out + one.err for one in (done, again, guessed, failed))
    assert SECRET not in said
    assert SECRET.encode() not in written(home)


@pytest.mark.usefixtures("vault")
def test_a_config_file_may_name_a_url(polyfed, home):
    text = f'[data]\nsource = "{URL}"\nclient = "ward"\n[data.tasks]\nregression = ["pulse"]\n[run]\nrounds = 1\n'
    (home / "settings").mkdir()
    (home / "settings" / "s.toml").write_text(text)
    done = polyfed("run", "settings/s.toml", "-q")
    assert (done.code, (home / "runs" / "clinic-pfed-hier-0").is_dir()) == (0, True)
