"""`polyfed run`: from a table to a run folder, with a bar, a log, and a way back after Ctrl-C."""

from __future__ import annotations

import json
import tomllib

import pytest

import polyfed.engine.run as engine
from polyfed.errors import NumericalError

RUN = ["run", "--data", "hospitals.csv", "--client", "ward", "--features", "age", "--no-report", "--rounds", "2"]
TARGETS = ["--regression", "pulse", "--binary", "sick"]


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C in the middle of round 2, the first time."""
    original, pressed = engine.run_round, []

    def run_round(method, progress, *rest):
        if progress.round == 1 and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return original(method, progress, *rest)

    monkeypatch.setattr(engine, "run_round", run_round)


def test_a_table_becomes_a_run_folder(polyfed, home):
    done = polyfed(*RUN, *TARGETS)
    assert done.code == 0
    assert done.err == ""  # no bar: stderr is not a terminal
    assert "pulse rmse" in done.out
    assert "The run is in runs/hospitals-pfed-hier-0" in done.out
    folder = home / "runs" / "hospitals-pfed-hier-0"
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["data"]["source"] == str(home / "hospitals.csv")
    assert config["data"]["test"] == 0.2
    assert config["data"]["tasks"] == [{"name": "pulse", "kind": "regression"}, {"name": "sick", "kind": "binary"}]
    assert config["method"]["learning_rate"] == 0.3  # what was left open is written down too
    assert json.loads((folder / "run.json").read_bytes())["command"][:2] == ["polyfed", "run"]
    log = (folder / "run.log").read_text().splitlines()
    assert [line.split(" ", 1)[1].split(":")[0] for line in log] == ["begin", "round 1", *["round 2"] * 3, "end"]


def test_rejected_updates_are_counted(polyfed, home):
    done = polyfed(*RUN, *TARGETS, "--method", "pfed-mul", "--set", "run.max_norm=1e-9", "--json")
    rejected = json.loads(done.out)["rejected_updates"]
    assert rejected > 0
    again = polyfed(*RUN, *TARGETS, "--method", "pfed-mul", "--set", "run.max_norm=1e-9", "--out", "again")
    assert f", {rejected} updates rejected, " in again.out


def test_the_settings_in_the_folder_give_the_same_run(polyfed, home, run):
    assert polyfed("run", run / "config.toml", "--out", "again", "--no-report").code == 0
    assert (home / "again" / "events.jsonl").read_bytes() == (run / "events.jsonl").read_bytes()


def test_a_config_file_its_options_and_set(polyfed, home):
    (home / "sub").mkdir()
    (home / "sub" / "study.toml").write_text(
        "[data]\nsource = '../hospitals.csv'\nclient = 'ward'\nfeatures = ['age']\n"
        "[[data.tasks]]\nname = 'sick'\nkind = 'binary'\nclasses = ['yes', 'no']\n"
        "[run]\nrounds = 9\nseed = 3\n"
    )
    argv = ["run", "sub/study.toml", "--rounds", "1", "--set", "method.kernel=matern32", "--json", "--no-report"]
    document = json.loads(polyfed(*argv, "--set", "run.evaluate_every=0").out)
    assert document["rounds"] == 1  # the option wins over the file
    assert document["seed"] == 3
    assert document["options"]["kernel"] == "matern32"
    assert document["folder"] == "runs/hospitals-pfed-hier-3"


@pytest.mark.parametrize(
    ("targets", "kinds"),
    [
        (["--robust", "pulse", "--multiclass", "sick"], {"pulse": "robust", "sick": "multiclass"}),
        (["--count", "visits", "--proportion", "cured/treated"], {"visits": "count", "cured/treated": "proportion"}),
        (["--regression", "pulse,visits"], {"pulse": "regression", "visits": "regression"}),
        (["--binary", "old", "--derive", "old=age>55", "--drop", "sick,visits"], {"old": "binary"}),
    ],
)
def test_kinds_of_targets(polyfed, home, targets, kinds):
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--rounds", "1", "--json", "--no-report"]
    done = polyfed(*argv, *targets)
    assert done.code == 0, done.err
    assert json.loads(done.out)["tasks"] == kinds


def test_a_column_that_a_target_is_derived_from_is_no_feature(polyfed, home):
    argv = [
        "run",
        "--data",
        "hospitals.csv",
        "--client",
        "ward",
        "--drop",
        "sick,visits,cured,treated",
        "--rounds",
        "0",
    ]
    assert polyfed(*argv, "--binary", "old", "--derive", "old=age>55", "--no-report").code == 0
    study = json.loads((home / "runs/hospitals-pfed-hier-0/prepared.json").read_bytes())
    assert [column["name"] for column in study["prepared"]["agreed"]["columns"]] == ["pulse"]


def test_a_folder_of_files_is_a_federation(polyfed, home):
    (home / "wards").mkdir()
    for i, ward in enumerate(("basel", "bern")):
        rows = "".join(f"{30 + i + j},{60 + j}\n" for j in range(6))
        (home / "wards" / f"{ward}.csv").write_text(f"age,pulse\n{rows}")
    done = polyfed("run", "--data", "wards", "--regression", "pulse", "--rounds", "1", "--json", "--no-report")
    assert json.loads(done.out)["clients"] == ["basel", "bern"]


def test_a_client_with_one_row_takes_part(polyfed, home):
    with (home / "hospitals.csv").open("a") as file:
        file.write("chur,40,80,no,1,1,3\n")
    done = polyfed(*RUN, *TARGETS, "--json")
    assert "chur" in json.loads(done.out)["clients"]


def test_ctrl_c_leaves_a_run_that_goes_on(polyfed, home, interrupted, run):
    argv = [*RUN, *TARGETS, "--out", "mine"]
    done = polyfed(*argv)
    assert done.code == 130
    assert done.err == "error: mine: stopped after round 1 of 2; go on with: polyfed run --resume mine.\n"
    assert polyfed("run", "--resume", "mine", "--no-report").code == 0
    assert (home / "mine" / "events.jsonl").read_bytes() == (run / "events.jsonl").read_bytes()


def test_a_finished_run_can_be_made_longer(polyfed, run):
    done = polyfed("run", "--resume", run, "--rounds", "3", "--json", "--no-report")
    assert json.loads(done.out)["rounds"] == 3


def test_a_source_that_is_gone_does_not_stop_a_resume(polyfed, home, run):
    (home / "hospitals.csv").unlink()
    assert polyfed("run", "--resume", run, "--rounds", "3", "--no-report").code == 0


def test_an_unexpected_error_is_one_line_with_its_traceback_in_the_log(polyfed, home, monkeypatch):
    original = engine.run_round

    def break_later(method, progress, *rest):
        if progress.round == 1:
            raise ZeroDivisionError("by nobody expected")
        return original(method, progress, *rest)

    monkeypatch.setattr(engine, "run_round", break_later)
    done = polyfed(*RUN, *TARGETS)
    assert (done.code, done.err) == (1, "error: ZeroDivisionError: by nobody expected\n")
    assert "Traceback" in (home / "runs/hospitals-pfed-hier-0/run.log").read_text()
    done = polyfed("--debug", *RUN, *TARGETS, "--out", "second")
    assert done.err.startswith("Traceback")


@pytest.mark.parametrize(
    "error", [NumericalError("the matrix is not positive", where="client 'basel'"), OSError(28, "No space")]
)
def test_a_run_that_fails_at_once_leaves_nothing(polyfed, home, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(engine, "run_round", fail)
    done = polyfed(*RUN, *TARGETS)
    assert done.code == (5 if isinstance(error, NumericalError) else 2)
    assert done.err.count("\n") == 1
    assert not (home / "runs").exists()


def test_a_run_without_test_rows_says_so(polyfed, home):
    done = polyfed(*RUN, *TARGETS, "--test-fraction", "0")
    assert done.code == 0
    assert "there are none to measure on" in done.out


def test_of_very_many_clients_a_part_takes_part_in_a_round(polyfed, home, monkeypatch):
    from polyfed.engine import evaluation
    from polyfed.experiments import running

    monkeypatch.setattr(evaluation, "MANY", 5)
    monkeypatch.setattr(evaluation, "MEASURED", 4)
    monkeypatch.setattr(running, "SAMPLE", 3)
    lines = [f"c{i % 8},{i / 10},{i % 7}" for i in range(160)]
    (home / "many.csv").write_text("\n".join(["site,x,y", *lines]))
    given = ["run", "--data", "many.csv", "--client", "site", "--regression", "y", "--rounds", "1", "--json"]
    done = polyfed(*given, "--out", "some", "--method", "pfed-hier")
    assert done.code == 0
    assert "8 clients: 3 of them, drawn anew each time, take part in a round; with --sample 8 all do" in done.err
    assert "sample = 3" in (home / "some" / "config.toml").read_text()
    assert len(json.loads(done.out)["untrained"]) == 5
    for out, further in (("all", ["--sample", "8", "--method", "pfed-hier"]), ("own", ["--method", "local"])):
        whole = polyfed(*given, "--out", out, *further)
        assert "take part in a round" not in whole.err
        assert json.loads(whole.out)["untrained"] == []
