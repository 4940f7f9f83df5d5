"""A grid of options: the validation rows choose among its combinations, and nothing else does."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path

import pytest

import polyfed.engine.run as engine
from polyfed.cli.documents import CompareDocument
from polyfed.experiments.building import build_federation
from polyfed.experiments.comparing import cells, run_cells
from polyfed.experiments.grid import folder_name
from polyfed.experiments.reading import check
from polyfed.experiments.tuning import Choice, loss_of
from polyfed.folders.lines import read_events

COMPARE = ["compare", "--data", "hospitals.csv", "--client", "ward", "--features", "age", "--regression", "pulse"]
COMPARE += ["--methods", "local,pfed-st", "--rounds", "1", "--out", "all", "--no-report", "--quiet"]
COMPARE += ["--validation-fraction", "0.25", "--grid", "local.learning_rate=0.5,0.001"]
FAST, SLOW = {"learning_rate": 0.5}, {"learning_rate": 0.001}


def change(folder: Path, part: str, metric: str, value: float | None) -> None:
    """Give every client this score, in the evaluations on this part of the rows."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        if event.get("part") == part:
            for tasks in event["clients"].values():
                for metrics in tasks.values():
                    metrics[metric] = value
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    shutil.rmtree(
        folder / "checkpoints", ignore_errors=True
    )  # they know what the events were; results.json says that the run is over


def document(done) -> dict:
    assert done.code == 0, done.err
    CompareDocument.model_validate_json(done.out)
    return json.loads(done.out)


def test_the_validation_rows_choose_and_the_test_rows_do_not(polyfed, home):
    document(polyfed(*COMPARE, "--json"))
    for name, validation, test in (
        ("local-learning_rate=0.5-0", 1.0, 900.0),
        ("local-learning_rate=0.001-0", 2.0, 0.0),
    ):
        change(home / "all" / name, "validation", "nlpd", validation)
        for metric in ("nlpd", "rmse", "mse"):
            change(home / "all" / name, "test", metric, test)  # by these, the other would win
    found = document(polyfed(*COMPARE, "--json"))
    assert found["tuning"] == {
        "local": {
            "grid": {"learning_rate": [0.5, 0.001]},
            "combinations": [
                {"options": FAST, "loss": 1.0, "by_seed": {"0": 1.0}},
                {"options": SLOW, "loss": 2.0, "by_seed": {"0": 2.0}},
            ],
            "chosen": FAST,
        }
    }
    assert found["table"]["local"]["scores"]["pulse"]["mean"] == 900  # what it is told by are the test rows
    assert [(cell["options"], cell["chosen"]) for cell in found["cells"]] == [(FAST, True), (SLOW, False), ({}, True)]

    change(home / "all/local-learning_rate=0.5-0", "validation", "nlpd", 3.0)
    found = document(polyfed(*COMPARE, "--json"))
    assert found["tuning"]["local"]["chosen"] == SLOW
    assert found["table"]["local"]["scores"]["pulse"]["mean"] == 0


def test_one_combination_is_chosen_for_all_seeds(polyfed, home):
    document(polyfed(*COMPARE, "--seeds", "0,1", "--json"))
    for name, loss in {"0.5-0": 1.0, "0.5-1": 9.0, "0.001-0": 4.0, "0.001-1": 4.0}.items():
        change(home / f"all/local-learning_rate={name}", "validation", "nlpd", loss)
    found = document(polyfed(*COMPARE, "--seeds", "0,1", "--json"))
    assert [one["loss"] for one in found["tuning"]["local"]["combinations"]] == [5, 4]  # though the first wins seed 0
    assert [c["seed"] for c in found["cells"] if c["chosen"] and c["options"] == SLOW] == [0, 1]
    assert found["table"]["local"]["scores"]["pulse"]["seeds"] == 2


def test_the_loss_of_a_run(tmp_path):
    def evaluation(round, part, model="personal", **clients):
        return {"event": "evaluation", "round": round, "part": part, "model": model, "clients": clients}

    def write(*events):
        start = {"event": "start", "clients": ["a", "b"], "tasks": {"pulse": "regression", "sick": "binary"}}
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (start, *events)))

    last = evaluation(
        4,
        "validation",
        a={"pulse": {"nlpd": 1.0, "rmse": 70.0}, "sick": {"nll": 0.5, "accuracy": 0.9}},
        b={"pulse": {"nlpd": 4.0, "rmse": 80.0}},
    )
    others = [
        evaluation(2, "validation", a={"pulse": {"nlpd": -9.0}, "sick": {"nll": 0.0}}),
        evaluation(4, "validation", "global", a={"pulse": {"nlpd": -9.0}, "sick": {"nll": 0.0}}),
        evaluation(4, "test", a={"pulse": {"nlpd": -9.0}, "sick": {"nll": 0.0}}),
    ]
    write(others[0], last, *others[1:])
    assert loss_of(read_events(tmp_path)) == (1 + 4) / 2 + 0.5
    last["clients"]["b"]["pulse"]["nlpd"] = None  # as an endless loss is written: that client must not be left out
    write(others[0], last, *others[1:])
    assert loss_of(read_events(tmp_path)) == math.inf
    write(others[2])
    assert loss_of(read_events(tmp_path)) == math.inf


def test_of_equal_combinations_the_first_and_never_an_endless_one():
    assert Choice({"a": [1, 2, 3]}, [[2.0, 2.0], [1.0, 1.0], [0.0, 2.0]]).chosen == {"a": 2}
    assert Choice({"a": [1, 2, 3]}, [[-math.inf, math.inf], [0.0, math.inf], [5.0, 5.0]]).chosen == {"a": 3}
    assert Choice({"a": [1, 2]}, [[math.inf], [math.nan]]).chosen is None


def test_a_combination_that_diverges_is_not_chosen(polyfed, home):
    document(polyfed(*COMPARE, "--json"))
    change(home / "all/local-learning_rate=0.5-0", "validation", "nlpd", None)
    found = document(polyfed(*COMPARE, "--json"))
    assert found["tuning"]["local"]["combinations"][0]["loss"] is None
    assert found["tuning"]["local"]["chosen"] == SLOW
    change(home / "all/local-learning_rate=0.001-0", "validation", "nlpd", None)
    done = polyfed(*COMPARE, "--json")
    assert (done.code, done.err) == (
        1,
        "error: the grid of local: no combination has a finite loss on the validation rows with every seed; "
        "give it other values.\n",
    )
    assert json.loads(done.out)["table"]["local"] == {"scores": {}, "rank": None, "pools_data": False}


def test_a_combination_that_fails_is_not_chosen(polyfed, home, monkeypatch):
    run_round = engine.run_round

    def broken(method, *rest):
        if getattr(method, "learning_rate", None) == 0.5:
            raise ArithmeticError("too fast")
        return run_round(method, *rest)

    monkeypatch.setattr(engine, "run_round", broken)
    done = polyfed(*COMPARE, "--json")
    assert done.code == 1
    assert "1 of 3 runs failed, the first with: all/local-learning_rate=0.5-0: ArithmeticError: too fast" in done.err
    assert json.loads(done.out)["tuning"]["local"]["chosen"] == SLOW


def test_ctrl_c_then_the_rest_then_a_larger_grid(polyfed, home, monkeypatch):
    run_round, calls = engine.run_round, []

    def counted(*arguments):
        calls.append(True)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run_round(*arguments)

    monkeypatch.setattr(engine, "run_round", counted)
    assert polyfed(*COMPARE).code == 130
    assert polyfed(*COMPARE).code == 0
    assert len(calls) == 4  # three cells, and the one that was stopped again
    found = document(polyfed(*COMPARE, "--grid", "local.learning_rate=0.1", "--json"))
    assert len(calls) == 5
    assert found["tuning"]["local"]["grid"] == {"learning_rate": [0.5, 0.001, 0.1]}


def test_a_section_of_the_settings_and_every_combination(polyfed, home):
    (home / "study.toml").write_text(
        '[data]\nsource = "hospitals.csv"\nclient = "ward"\nfeatures = ["age"]\nvalidation = 0.25\n'
        '[data.tasks]\nregression = ["pulse"]\n[run]\nrounds = 1\n[compare]\nmethods = ["local", "pfed-st"]\n'
        '[compare.grid.all]\nlearning_rate = [0.1]\n[compare.grid.local]\nkernel = ["rbf", "matern52"]\n'
        "learning_rate = [0.5, 0.001]\n"
    )
    found = document(polyfed("compare", "study.toml", "--no-report", "--json", "--out", "all"))
    own, other = (found["tuning"][method]["combinations"] for method in ("local", "pfed-st"))
    assert [(one["options"]["learning_rate"], one["options"]["kernel"]) for one in own] == [
        (0.5, "rbf"), (0.5, "matern52"), (0.001, "rbf"), (0.001, "matern52"),
    ]  # fmt: skip
    assert [one["options"] for one in other] == [{"learning_rate": 0.1}]
    written = (home / "all/local-learning_rate=0.001-kernel=matern52-0/config.toml").read_text()
    assert "learning_rate = 0.001\n" in written
    assert 'kernel = "matern52"\n' in written


def test_methods_without_an_option_of_all_are_named(polyfed, home):
    argv = [argument if argument != "local,pfed-st" else "local,fedavg" for argument in COMPARE[:-2]]
    argv += ["--grid", "all.batch_size=4,8"]
    done = polyfed(*argv, "--json")
    assert done.err == "note: local without option 'batch_size': not tuned by it\n"
    assert list(document(done)["tuning"]) == ["fedavg"]


def test_the_choice_is_shown_in_the_table_and_in_the_report(polyfed, home):
    argv = [argument for argument in COMPARE if argument != "--no-report"]
    assert polyfed(*argv).code == 0
    change(home / "all/local-learning_rate=0.5-0", "validation", "nlpd", 77.0)
    done = polyfed(*argv)
    assert "│ local │" not in done.out
    assert "local (learning_rate=0.001)" in done.out
    page = (home / "all/report.html").read_text()
    assert "<strong>learning_rate=0.001</strong> (chosen)" in page
    assert '<td>learning_rate=0.5</td><td class="number">77</td>' in page
    assert "local-learning_rate=0.5-0" not in page  # only what was chosen is compared


@pytest.mark.slow
def test_processes_choose_alike(polyfed, home):
    one = document(polyfed(*COMPARE, "--json"))
    two = document(polyfed(*COMPARE, "--json", "--out", "parallel", "--jobs", "2"))
    assert (two["tuning"], two["table"]) == (one["tuning"], one["table"])


class Terminal:
    """What is written to a terminal that is not there."""

    def __init__(self) -> None:
        self.text, self.encoding = "", "utf-8"

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_a_bar_for_processes(polyfed, home, monkeypatch):
    argv = [argument for argument in COMPARE if argument != "--quiet"]
    assert polyfed(*argv, "--jobs", "2").err == ""  # no terminal, no bar
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert polyfed(*argv, "--seeds", "0,1", "--jobs", "2").code == 0
    assert "3 of 6 runs ended" in terminal.text  # those of before
    assert "6 of 6 runs ended" in terminal.text
    assert "6/6" in terminal.text


@pytest.mark.slow
def test_rounds_are_told_by_other_processes(home):
    document = {
        "data": {"source": "hospitals.csv", "client": "ward", "features": ["age"], "tasks": {"regression": ["pulse"]}},
        "run": {"rounds": 3},
        "compare": {"methods": ["local", "pfed-st"]},
    }
    config = check(document, "test")
    federation = build_federation(config.data, "test")
    heard: dict[str, list[int]] = {}
    todo = cells(config, federation, Path("all"), "test")

    def on_event(cell, event):
        heard.setdefault(cell.method, []).append(event["round"])

    outcomes = list(run_cells(todo, federation, "test", jobs=2, on_event=on_event))
    assert [one.error for one in outcomes] == [None, None]
    assert {method: rounds[:2] for method, rounds in heard.items()} == {"local": [1, 2], "pfed-st": [1, 2]}


def test_values_that_no_folder_can_be_named_after_have_folders_of_their_own():
    names = {folder_name("fedavg", {"network": value}, 0) for value in ("a/b:c", "a_b_c", "a:b/c", "x" * 300)}
    assert len(names) == 4
    assert all("/" not in name and len(name) < 200 for name in names)
