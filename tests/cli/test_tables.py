"""Tables whose names, classes and files are unusual: nothing is wrong in silence, from the run to the prediction."""

from __future__ import annotations

import io
import json
import re

import pandas as pd
import pytest

import polyfed as pf
from command_line import RUN, people


def test_clients_called_mean_and_spread_are_clients(polyfed, home):
    (home / "t.csv").write_text(people(("mean", "std", "bern")))
    done = polyfed(*RUN, "--binary", "sick")
    assert done.code == 0, done.err
    names = re.findall(r"^│ (\w+) ", done.out, re.M)
    assert names == ["bern", "mean", "std", "mean", "std", "median"]
    below = done.out[: done.out.index("└")].rindex("├")
    assert re.findall(r"^│ (\w+) ", done.out[below:], re.M) == [
        "mean",
        "std",
        "median",
    ]  # what sums up stands below a line
    run = pf.load("r")
    assert list(run.summary().index) == ["bern", "mean", "std"]
    assert run.averages().loc["clients", ("sick", "accuracy")] == 3
    assert run.averages().loc["mean", ("sick", "accuracy")] == pytest.approx(run.summary()["sick"]["accuracy"].mean())


def test_the_json_of_a_run_counts_them(polyfed, home):
    (home / "t.csv").write_text(people(("mean", "std", "bern")))
    document = json.loads(polyfed(*RUN, "--binary", "sick", "--json").out)
    assert document["scores"]["sick"]["accuracy"]["clients"] == 3
    assert document["clients"] == ["bern", "mean", "std"]


def test_a_class_called_na_is_a_class_from_the_run_to_the_prediction(polyfed, home):
    (home / "t.csv").write_text(people(classes=("None", "NA")))
    done = polyfed(*RUN, "--binary", "sick")
    assert done.code == 0
    assert "warning: t.csv: task 'sick': 'NA' is taken for a class" in done.err
    assert "missing=['', 'NA'] (--missing)" in done.err
    found = json.loads(polyfed("predict", "r", "t.csv", "--client", "a", "--json").out)
    assert found["columns"][:3] == ["sick.label", "sick.p(NA)", "sick.p(None)"]
    assert set(found["predictions"]["sick.label"]) == {"NA", "None"}
    assert set(found["scores"]) | set(found["training_scores"]) == {"sick"}


def test_markers_go_with_the_run(polyfed, home):
    (home / "t.csv").write_text(people(n=20).replace("yes\n", "?\n", 1))
    assert polyfed(*RUN, "--binary", "sick", "--missing", ",?").code == 0
    assert 'missing = ["", "?"]' in (home / "r" / "config.toml").read_text()
    (home / "new.csv").write_text("age,sex,sick\n30,f,?\n70,m,yes\n")
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert found["scores"]["sick"]["accuracy"] in (0.0, 1.0)  # of the one label that is one
    assert json.loads(polyfed("join", "r", "new.csv", "--name", "c", "--json").out)["labels"] == {"sick": 1}


def test_no_marker_at_all_is_a_setting_too(polyfed, home):
    (home / "t.csv").write_text(people(classes=("no", "")))
    assert polyfed(*RUN, "--binary", "sick", "--set", "data.missing=[]").code == 0
    assert "missing = []" in (home / "r" / "config.toml").read_text()
    found = json.loads(polyfed("predict", "r", "t.csv", "--client", "a", "--json").out)
    assert found["columns"][:3] == ["sick.label", "sick.p()", "sick.p(no)"]


def test_a_parquet_column_of_lists_is_rejected(polyfed, home):
    pd.DataFrame({"ward": [["a"], ["b"]], "age": [1, 2], "pulse": [1, 2]}).to_parquet(home / "t.parquet")
    done = polyfed("run", "--data", "t.parquet", "--client", "ward", "--regression", "pulse")
    assert done.code == 4
    assert done.err == (
        "error: row 0 of t.parquet: column 'ward' holds a ndarray, which is no name of a client; "
        "give each row the name of one client.\n"
    )


def test_a_compressed_table_runs(polyfed, home):
    pd.read_csv(io.StringIO(people())).to_csv(home / "t.csv.gz", index=False)
    assert polyfed("run", "--data", "t.csv.gz", "--client", "ward", "--binary", "sick", "--rounds", "1", "-q").code == 0
    assert (home / "runs" / "t-pfed-hier-0" / "run.json").is_file()
