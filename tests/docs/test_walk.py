"""The walk on the architecture page is the one that a run takes."""

import re
import sys
import tomllib
from importlib import import_module

import numpy as np
import pages
import pandas as pd
import pytest

PAGE = pages.ROOT / "docs/explanation/architecture.md"


def steps(text: str, heading: str, until: str) -> list[str]:
    """The functions that the numbered steps of a section name, in order."""
    section = text.split(heading, 1)[1].split(until, 1)[0]
    return re.findall(r"`([\w/]+\.py::[\w.]+)`", section)


def test_the_rooms_on_the_page_are_those_that_make_check_enforces():
    contracts = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["name"] == "The rooms of the house")
    section = PAGE.read_text().split("## Rooms", 1)[1].split("\n## ", 1)[0]
    drawn = [" | ".join(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`.*?) \| ", section, re.M)]
    assert drawn == [layer for layer in layers if layer != "__main__"]


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    """The functions of polyfed in the order in which a run of one round calls them first."""
    here, rng = tmp_path_factory.mktemp("walk"), np.random.default_rng(0)
    ward, age = np.repeat(["a", "b"], 12), rng.normal(60, 9, 24).round(1)
    pd.DataFrame({"ward": ward, "age": age, "pulse": 70 + age / 9}).to_csv(here / "t.csv", index=False)
    arguments = ["run", "--data", str(here / "t.csv"), "--client", "ward", "--regression", "pulse", "--rounds", "1"]
    found: dict[str, None] = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and "/polyfed/" in code.co_filename:
            found.setdefault(f"{code.co_filename.rsplit('/polyfed/', 1)[1]}::{code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert import_module("polyfed.cli.main").main([*arguments, "--out", str(here / "run"), "--no-report"]) == 0
    finally:
        sys.setprofile(before)
    return list(found)


def test_a_run_takes_the_walk_in_its_order(called):
    walk = steps(PAGE.read_text(), "**The command**", "**A client's step**")
    assert len(walk) > 10
    assert [name for name in called if name in walk] == walk


def test_a_clients_step_takes_the_walk(called):
    walk = steps(PAGE.read_text(), "**A client's step**", "On machines of their own")
    # Compiled functions are not seen; torch's path and classes are named beside the path that is taken.
    beside = {"gp/compiled/clients.py::solve_clients", "gp/meanfield.py::infer", "gp/batch.py::ClientBatch"}
    if "gp/compiled/inference.py::solve_model" not in called:
        pytest.skip("the inner loop is not compiled here")
    assert set(walk) - beside <= set(called)
