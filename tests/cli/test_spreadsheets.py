"""Predictions as CSV: what a spreadsheet would run as a formula is a text."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest

from command_line import RUN, people
from polyfed.cli.predict import as_csv


def test_a_class_that_is_a_formula_is_a_text_in_the_table(polyfed, home):
    (home / "t.csv").write_text(people(classes=("=cmd|'/c calc'!A1", "@x")))
    assert polyfed(*RUN, "--binary", "sick").code == 0
    (home / "new.csv").write_text("age,sex\n20,f\n80,m\n")
    table = pd.read_csv(io.StringIO(polyfed("predict", "r", "new.csv", "--client", "a").out))
    assert set(table["sick.label"]) <= {"'=cmd|'/c calc'!A1", "'@x"}
    assert polyfed("predict", "r", "new.csv", "--client", "a", "--out", "p.csv").code == 0
    assert set(pd.read_csv("p.csv")["sick.label"]) <= {"'=cmd|'/c calc'!A1", "'@x"}
    found = json.loads(polyfed("predict", "r", "new.csv", "--client", "a", "--json").out)
    assert set(found["predictions"]["sick.label"]) <= {"=cmd|'/c calc'!A1", "@x"}  # JSON is no spreadsheet


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_every_beginning_of_a_formula(begin):
    table = pd.DataFrame({f"{begin}task.label": [f"{begin}SUM(A1)", "fine"], "mean": [-1.5, 2.0]})
    back = pd.read_csv(io.StringIO(as_csv(table)))
    assert list(back) == [f"'{begin}task.label", "mean"]
    assert back.iloc[:, 0].tolist() == [f"'{begin}SUM(A1)", "fine"]
    assert back["mean"].tolist() == [-1.5, 2.0]  # numbers stay numbers
    inside = as_csv(pd.DataFrame({"label": [f"x{begin}=SUM(A1)"]}))
    assert pd.read_csv(io.StringIO(inside)).to_numpy().tolist() == [[f"x{begin}=SUM(A1)"]]  # one cell
    assert list(table) == [f"{begin}task.label", "mean"]  # what was given is left alone


def test_texts_that_are_numbers_stay_as_they_are():
    table = pd.DataFrame({"label": ["-1", "+1.5", "-x"], "other": pd.Series([-1, True, "-"], dtype=object)})
    assert as_csv(table) == "label,other\n-1,-1\n+1.5,True\n'-x,'-\n"
