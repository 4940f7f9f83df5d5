"""Who took no part, and who would not elsewhere, is said: by `run`, in its JSON and in the report."""

from __future__ import annotations

import json

from polyfed.data import DEPLOYED
from polyfed.report.doubts import FEWEST, left_out

STUDY = [
    "run",
    "--data",
    "hospitals.csv",
    "--client",
    "ward",
    "--regression",
    "pulse",
    "--features",
    "age",
    "--rounds",
    "1",
]


def test_the_limit_of_the_page_is_that_of_nodes():
    assert DEPLOYED.min_rows == FEWEST


def test_who_would_be_left_out_elsewhere(polyfed, home):
    done = polyfed(*STUDY, "--out", "a")
    assert done.code == 0
    line = (
        "On a machine of its own this would stay out of what is sent (fewer than 10 training labels): "
        "basel (6 of pulse), bern (7 of pulse), thun (6 of pulse)"
    )
    assert line in done.out
    assert line in (home / "a" / "report.html").read_text()


def test_who_was_left_out(polyfed, home):
    rows = [f"{ward},{30 + i},{60 + i / 2}" for ward, n in (("basel", 20), ("bern", 20), ("thun", 5)) for i in range(n)]
    (home / "hospitals.csv").write_text("\n".join(["ward,age,pulse", *rows]) + "\n")
    done = polyfed(*STUDY, "--set", "data.min_rows=10", "--out", "a")
    assert done.code == 0, done.err
    line = "Too few labels to take part in rounds, so served as clients that join late: thun"
    assert line in done.out
    assert "In no round was an update used" not in done.out
    assert "On a machine of its own" not in done.out  # it is one already, in that respect
    assert line in (home / "a" / "report.html").read_text()
    told = json.loads(polyfed(*STUDY, "--set", "data.min_rows=10", "--out", "b", "--no-report", "--json").out)
    assert (told["silent"], told["rejected"], told["unknown"]) == (["thun"], {}, {})
    assert told["below"] == {"thun": {"pulse": 4}}
    assert told["untrained"] == []
    predicted = polyfed("predict", "a", "hospitals.csv", "--client", "thun", "--json")
    assert predicted.code == 0, predicted.err
    bad = polyfed(*STUDY, "--set", "data.min_rows=0", "--out", "c")
    assert (bad.code, bad.err.strip()) == (3, "error: command line: min_rows is 0; give a whole number from 1 up.")


def test_lines_are_never_long():
    many = {f"client {i}": {"pulse": i + 1} for i in range(50)}
    (line,) = left_out({"below": many})
    assert line.endswith("client 4 (5 of pulse) and 45 more")
    assert left_out({}) == []
    (unknown,) = left_out({"unknown": {"basel": {"stage": 2}}})
    assert unknown == (
        "Labels of classes that no client named from its training rows were neither learned nor scored "
        "(give the task classes=...): basel (2 of stage)"
    )
    (rejected,) = left_out({"rejected": {"m": "its note lacks 'labels'"}})
    assert rejected == "What they sent in round 0 could not be used, so they took no part: m (its note lacks 'labels')"
