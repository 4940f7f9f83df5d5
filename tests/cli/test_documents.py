"""--json: one document on stdout that fits its model, nothing else; and the schemas for other programs."""

from __future__ import annotations

import json

import pytest

from polyfed.cli.app import command
from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
from polyfed.cli.documents import DOCUMENTS

HERE = {  # command → arguments, in a folder with `hospitals.csv` and a finished `run`
    "run": "--data hospitals.csv --client ward --regression pulse --features age --rounds 1 --out new --no-report",
    "predict": "run hospitals.csv --client basel",
    "join": "run hospitals.csv --name chur",
    "compare": "--data hospitals.csv --client ward --regression pulse --features age --rounds 1 --seeds 0,1 --no-report"
    " --methods local,pfed-st --validation-fraction 0.25 --grid local.learning_rate=0.1,0.01",
    "report": "run",
    "export": "run --scores scores.csv",
    "doctor": "",
    "methods": "",
    "datasets": "",
    "init": "hospitals.csv",
    "names": "",
    "demo": "--quick --no-report",
    "reproduce": "synthetic --quick --rounds 1 --seeds 0",
}


@pytest.mark.parametrize("name", HERE)
def test_the_document_fits_its_model(name, polyfed, home, run):
    if name == "demo":
        pytest.importorskip("palmerpenguins", reason="the demo's data is the package palmerpenguins")
    done = polyfed(name, *HERE[name].split(), "--json")
    assert done.code == 0, done.err
    document = DOCUMENTS[name].model_validate_json(done.out)  # fails if there is anything else
    assert json.loads(done.out)["command"] == name
    assert document.model_dump()["command"] == name


def test_every_command_with_json_has_a_model():
    with_json = {
        name
        for name, made in command().commands.items()
        if any("--json" in parameter.opts for parameter in made.params)
    }
    assert with_json == set(DOCUMENTS) == {*HERE, "watch"}  # watch goes on for ever: see the tests of processes


def test_the_schema_of_a_command(polyfed):
    schema = json.loads(polyfed("schema", "run").out)
    assert schema["properties"]["rounds"]["type"] == "integer"
    assert set(schema["required"]) >= {"folder", "method", "scores"}
    assert set(json.loads(polyfed("schema").out)) == {*DOCUMENTS, *DEPLOY_DOCUMENTS}


def test_a_number_that_is_none_is_null(polyfed, home):
    argv = ["run", "--data", "hospitals.csv", "--client", "ward", "--regression", "pulse", "--features", "age"]
    (home / "hospitals.csv").write_text(
        "ward,age,pulse\nbasel,30,60\nbasel,40,70\nbasel,50,80\nbasel,60,90\nbasel,70,99\n"
    )
    document = json.loads(polyfed(*argv, "--rounds", "1", "--json", "--no-report").out)
    assert document["scores"]["pulse"]["rmse"]["std"] is None  # of one client


def test_errors_leave_stdout_empty(polyfed, home):
    done = polyfed("predict", "nowhere", "hospitals.csv", "--json")
    assert done.out == ""
    assert done.code == 4
