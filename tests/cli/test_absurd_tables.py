"""Tables that nobody would make on purpose: each is run to its end, or rejected in one sentence."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n).round(1)
    sick = np.where(rng.random(n) < 0.4, "yes", "no")
    frame = pd.DataFrame({"ward": rng.choice([*"abc"], n), "age": age, "sick": sick})
    return frame.assign(pulse=(70 + 0.3 * (age - 50) + rng.normal(0, 3, n)).round(1), visits=rng.poisson(2, n))


@pytest.fixture
def run(polyfed, home):
    def go(frame, *tasks, **written):
        frame.to_csv(home / "t.csv", index=False, **written)
        shutil.rmtree(home / "x", ignore_errors=True)
        return polyfed(
            "run", "--data", "t.csv", "--client", "ward", *tasks, *["--rounds", "2", "--quiet", "--out", "x"]
        )

    return go


ALL = ("--regression", "pulse", "--binary", "sick", "--count", "visits")


def test_a_client_with_one_row(run, polyfed, home):
    frame = table()
    frame.loc[0, "ward"] = "solo"
    done = run(frame, *ALL)
    assert (done.code, "solo (1 of pulse, 1 of sick, 1 of visits)" in done.out) == (0, True)
    assert polyfed("predict", "x", "t.csv", "--out", "p.csv").code == 0
    assert len(pd.read_csv(home / "p.csv")) == 60


def test_one_class(run):
    done = run(table().assign(sick=1), "--binary", "sick")
    assert done.code == 0
    assert "warning: task 'sick': all labels are 1, so there is nothing to learn\n" in done.err
    done = run(table().assign(sick="yes"), "--binary", "sick")
    assert done.code == 4
    assert done.err.splitlines()[-1] == (
        "error: task 'sick': all labels are 'yes', so the other class is unknown; "
        "leave the task out, or give it classes=(negative, positive)."
    )


def test_a_target_that_is_always_the_same(run):
    done = run(table().assign(pulse=70.0), "--regression", "pulse")
    assert done.code == 0
    assert "warning: task 'pulse': all labels are 70.0, so there is nothing to learn\n" in done.err


def test_a_client_without_any_label(run):
    frame = table()
    frame.loc[frame["ward"] == "a", ["pulse", "sick", "visits"]] = None
    done = run(frame, *ALL)
    assert done.code == 0
    assert "Too few labels to take part in rounds, so served as clients that join late: a\n" in done.out


def test_each_client_has_a_class_of_its_own(run):
    frame = table()
    assert run(frame.assign(sick=np.where(frame["ward"] == "a", "yes", "no")), "--binary", "sick").code == 0


def test_duplicate_column_names(run):
    frame = table()
    done = run(pd.concat([frame, frame[["age"]]], axis=1), *ALL)
    assert (done.code, done.err) == (4, "error: t.csv: column 'age' appears twice; rename or drop one of them.\n")


def test_a_byte_order_mark_and_quoted_new_lines(run):
    plain = run(table(), *ALL)
    assert run(table(), *ALL, encoding="utf-8-sig").out[:500] == plain.out[:500]
    notes = np.where(table()["age"] > 50, 'a\nnote, "quoted"', "none")
    assert run(table().assign(note=notes), *ALL).code == 0
    odd = table().assign(note=notes, pulse=[*table()["pulse"][:-1].astype(str), "fast"])
    n_breaks = int((notes != "none").sum()) - int(notes[-1] != "none")
    assert f"line {61 + n_breaks} of t.csv" in run(odd, "--regression", "pulse").err


def test_a_thousand_columns(run, home):
    wide = np.random.default_rng(1).standard_normal((60, 1000))
    frame = pd.concat([table(), pd.DataFrame(wide, columns=[f"c{i}" for i in range(1000)])], axis=1)
    assert run(frame, "--regression", "pulse").code == 0
    assert (home / "x" / "report.html").stat().st_size < 1_500_000


def test_columns_that_are_constant_empty_or_huge(run):
    frame = table()
    frame = frame.assign(age=frame["age"] * 1e200, same=3, nothing=None)
    assert run(frame, *ALL, "--transform", "age=rank").code == 0
