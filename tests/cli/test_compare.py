"""`polyfed compare`: cells that are kept, a table with ranks, and folders that are not mixed up."""

from __future__ import annotations

import json

import pytest

import polyfed.engine.run as engine

COMPARE = ["compare", "--data", "hospitals.csv", "--client", "ward", "--features", "age", "--regression", "pulse"]
COMPARE += ["--methods", "pfed-mul,local", "--rounds", "1", "--out", "all", "--no-report", "--quiet"]


def test_the_table_is_the_mean_over_the_seeds(polyfed, home):
    done = polyfed(*COMPARE, "--seeds", "0,1", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert [(cell["method"], cell["seed"]) for cell in document["cells"]] == [
        ("pfed-mul", 0), ("pfed-mul", 1), ("local", 0), ("local", 1),
    ]  # fmt: skip
    means = {}
    for method in ("pfed-mul", "local"):
        values = [c["scores"]["pulse"]["rmse"] for c in document["cells"] if c["method"] == method]
        line = document["table"][method]["scores"]["pulse"]
        means[method] = sum(values) / 2
        assert line["mean"] == pytest.approx(means[method])
        assert line["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    better = min(means, key=lambda method: means[method])
    assert document["table"][better]["scores"]["pulse"]["rank"] == 1
    wins = document["ranking"]["wins"]
    assert document["table"]["local"]["rank"] == pytest.approx(2 - wins["local"]["pfed-mul"])  # of two methods
    assert document["ranking"]["blocks"] == 2 * 3  # seeds and clients


def test_guessing_and_no_privacy_stand_in_the_table(polyfed, home):
    arguments = [word.replace("pfed-mul,local", "local,sklearn-linear-pooled") for word in COMPARE]
    done = polyfed(*arguments, "--seeds", "0")
    assert done.code == 0, done.err
    assert "│ sklearn-linear-pooled (no privacy)" in done.out
    assert "│ guessing: mean, majority class" in done.out
    assert "no privacy: all rows are in one place; a yardstick, not a federation" in done.out
    # Three pairs can never be more than luck: 2 / 2³
    assert "luck may decide the order" in done.out
    assert "│ * " not in done.out


def test_finished_cells_are_kept_and_others_go_on(polyfed, home, monkeypatch):
    assert polyfed(*COMPARE, "--seeds", "0").code == 0
    written = (home / "all/pfed-mul-0/run.log").read_bytes()
    done = polyfed(*COMPARE, "--seeds", "0,1", "--json")
    assert len(json.loads(done.out)["cells"]) == 4
    assert (home / "all/pfed-mul-0/run.log").read_bytes() == written


def test_ctrl_c_and_the_same_command_again(polyfed, home, monkeypatch):
    original, calls = engine.run_round, []

    def run_round(*arguments):
        calls.append(True)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(engine, "run_round", run_round)
    done = polyfed(*COMPARE, "--seeds", "0")
    assert (done.code, done.err) == (130, "error: all: stopped; the same command goes on with what is left.\n")
    assert polyfed(*COMPARE, "--seeds", "0").code == 0
    assert len(calls) == 3  # the first cell was not completed again


@pytest.mark.slow
def test_processes_share_out_the_runs(polyfed, home):
    one = json.loads(polyfed(*COMPARE, "--seeds", "0", "--json").out)
    two = json.loads(polyfed(*COMPARE, "--seeds", "0", "--json", "--out", "parallel", "--jobs", "2").out)
    assert two["table"] == one["table"]


def test_options_that_came_later_are_no_difference(polyfed, home):
    assert polyfed(*COMPARE, "--seeds", "0").code == 0
    config = home / "all/pfed-mul-0/config.toml"
    before = config.read_text()
    config.write_text("\n".join(line for line in before.splitlines() if not line.startswith("proximal")) + "\n")
    assert config.read_text() != before
    assert polyfed(*COMPARE, "--seeds", "0").code == 0


def test_a_folder_of_another_comparison_is_rejected(polyfed, home):
    assert polyfed(*COMPARE, "--seeds", "0").code == 0
    done = polyfed(*COMPARE, "--seeds", "0", "--test-fraction", "0.4", "--set", "compare.options.local.kernel=linear")
    assert (done.code, done.err) == (
        2, "error: all/pfed-mul-0: the run there differs in test; choose another folder with --out.\n",
    )  # fmt: skip
    with (home / "hospitals.csv").open("a") as file:
        file.write("chur,40,80,no,1,1,3\n")
    assert "the run there differs in data;" in polyfed(*COMPARE, "--seeds", "0").err


def test_a_longer_run_is_not_set_beside_shorter_ones(polyfed, home):
    assert polyfed(*COMPARE, "--seeds", "0", "--rounds", "2").code == 0
    done = polyfed(*COMPARE, "--seeds", "0")
    assert (done.code, "all/pfed-mul-0: the run there differs in rounds;" in done.err) == (2, True)


def test_a_cell_that_fails_is_told_and_the_others_stay(polyfed, home, monkeypatch):
    original = engine.run_round

    def run_round(method, *rest):
        if method.name == "local":
            raise ArithmeticError("local broke")
        return original(method, *rest)

    monkeypatch.setattr(engine, "run_round", run_round)
    done = polyfed(*COMPARE, "--seeds", "0", "--json")
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        "error: 1 of 2 runs failed, the first with: all/local-0: ArithmeticError: local broke."
    )
    document = json.loads(done.out)
    assert [cell["error"] is None for cell in document["cells"]] == [True, False]
    assert not (home / "all" / "local-0").exists()
