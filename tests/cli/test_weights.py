"""Weights from the command line: from a column and by class to the report of a run, with what they change."""

from __future__ import annotations

import json

import pytest

from polyfed import load_model

ARGV = ["--client", "ward", "--features", "age", "--binary", "sick", "--rounds", "2", "--no-report", "--quiet"]


def test_weights_change_what_is_learned_and_are_kept(polyfed, home):
    rows = (home / "hospitals.csv").read_text().splitlines()
    weighted = [f"{rows[0]},w", *(f"{row},{5 if ',yes,' in row else 1}" for row in rows[1:])]
    (home / "t.csv").write_text("\n".join(weighted) + "\n")
    given = {"plain": [], "column": ["--weights", "w"], "classes": ["--class-weights", "sick=yes:5"]}
    proba = {}
    for name, options in given.items():
        drop = [] if name == "column" else ["--drop", "w"]
        done = polyfed("run", "--data", "t.csv", *ARGV, *drop, *options, "--out", name)
        assert done.code == 0, done.err
        done = polyfed("predict", name, "t.csv", "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)["predictions"]
        proba[name] = found["sick.p(yes)"]
        done = polyfed("export", name, "--model", f"{name}.model", "--client", "bern")
        assert done.code == 0, done.err
        own = [i for i, row in enumerate(rows[1:]) if row.startswith("bern")]
        loaded = load_model(home / f"{name}.model").predict({"age": [float(rows[1 + i].split(",")[1]) for i in own]})
        assert loaded["sick"].proba == pytest.approx([proba[name][i] for i in own], abs=1e-5)
    mean = {name: sum(values) / len(values) for name, values in proba.items()}
    assert mean["column"] > mean["plain"] + 0.02  # who is sick counts five times
    assert proba["column"] == proba["classes"]  # the same weights, however they are given
    assert "class_weights" in (home / "classes" / "config.toml").read_text()
    assert 'weights = "w"' in (home / "column" / "config.toml").read_text()
