"""Rows that are predicted: categories that training did not know, and rows that are not new at all."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from command_line import RUN, people


def test_unseen_categories_are_counted_and_said(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "new.csv").write_text("age,sex\n30,f\n40,x\n50,y\n60,x\n70,\n")
    done = polyfed("predict", "r", "new.csv", "--client", "a")
    assert "column 'sex': 3 rows hold a category that training did not know ('x', 'y')\n" in done.err
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert found["unseen"] == {"sex": {"rows": 3, "categories": ["x", "y"]}}
    done = polyfed("join", "r", "new.csv", "--name", "c", "--json")
    assert json.loads(done.out)["unseen"] == {"sex": {"rows": 3, "categories": ["x", "y"]}}
    assert (
        done.err == "warning: client 'c': column 'sex': 3 rows hold a category that training did not know ('x', 'y')\n"
    )
    (home / "new.csv").write_text("age,sex\n30,f\n")
    assert json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)["unseen"] == {}


def test_unseen_categories_are_said_in_python(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    model = pf.load("r").client("a")
    with pytest.warns(UserWarning, match="client 'a', new rows: column 'sex': 1 row holds a category"):
        model.predict({"age": [30.0], "sex": ["x"]})


def test_rows_of_a_client_that_joined_are_no_new_rows(polyfed, home):
    (home / "t.csv").write_text(people())
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "c.csv").write_text("age,sex,sick\n30,f,yes\n60,m,no\n65,f,no\n")
    assert polyfed("join", "r", "c.csv", "--name", "c").code == 0
    done = polyfed("predict", "r", "c.csv", "--client", "c", "--json")
    found = json.loads(done.out)
    assert (found["trained_on"], found["scores"]) == (3, {})
    assert set(found["training_scores"]) == {"sick"}
    (home / "c.csv").write_text("age,sex,sick\n30,f,yes\n60,m,no\n65,f,no\n62,m,yes\n")
    done = polyfed("predict", "r", "c.csv", "--client", "c")
    lines = done.err.splitlines()
    assert lines[0] == "3 of 4 rows were trained on, and are no measure of what is new"
    assert lines[1].startswith("sick: accuracy ")
    assert lines[2].startswith("sick, rows that were trained on: accuracy ")
    found = json.loads(polyfed("predict", "r", "c.csv", "--client", "c", "--json").out)
    labels = found["predictions"]["sick.label"]
    assert found["scores"]["sick"]["accuracy"] == float(labels[3] == "yes")
    right = np.mean([said == true for said, true in zip(labels[:3], ["yes", "no", "no"], strict=True)])
    assert found["training_scores"]["sick"]["accuracy"] == pytest.approx(right)


def test_the_table_of_the_run_itself_has_test_rows_that_are_new(polyfed, home):
    (home / "t.csv").write_text(people(n=15))
    assert polyfed(*RUN, "--binary", "sick").code == 0
    frame = pd.read_csv("t.csv")
    frame[frame["ward"] == "a"].to_csv("a.csv", index=False)
    found = json.loads(polyfed("predict", "r", "a.csv", "--client", "a", "--json").out)
    study = pf.load("r").prepared
    assert found["trained_on"] == len(study.clients["a"].train.x) == 12
    known = pf.load("r").summary("all").loc["a"]["sick"]
    assert found["scores"]["sick"]["accuracy"] == pytest.approx(known["accuracy"])
    assert found["scores"]["sick"]["nll"] == pytest.approx(known["nll"])
    frame[frame["ward"] == "b"].to_csv("b.csv", index=False)
    assert json.loads(polyfed("predict", "r", "b.csv", "--client", "a", "--json").out)["trained_on"] == 0


def test_a_model_of_all_data_was_trained_on_everyones_rows(polyfed, home):
    (home / "t.csv").write_text(people(n=15))
    assert polyfed(*RUN, "--binary", "sick", "--method", "pooled").code == 0
    frame = pd.read_csv("t.csv")
    frame[frame["ward"] == "b"].to_csv("b.csv", index=False)
    assert json.loads(polyfed("predict", "r", "b.csv", "--client", "a", "--json").out)["trained_on"] == 12
