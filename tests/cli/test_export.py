"""`polyfed export`: tables that hold what the run found, a model that needs no run folder, and trackers' own formats."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.errors import DataError
from polyfed.folders.lines import read_events

pytestmark = pytest.mark.usefixtures("run")
NEW = {"age": [31.0, 64.0]}


def test_scores_are_those_of_the_events(polyfed, home):
    done = polyfed("export", "run", "--scores", "scores.csv")
    assert (done.code, done.out) == (0, "The scores are in scores.csv\n"), done.err
    table = pd.read_csv(home / "scores.csv")
    last = [event for event in read_events(home / "run") if event["event"] == "evaluation"][-1]
    found = table[
        (table["round"] == last["round"]) & (table["model"] == last["model"]) & (table["part"] == last["part"])
    ]
    told = {(c, t, m): v for c, tasks in last["clients"].items() for t, of in tasks.items() for m, v in of.items()}
    assert len(found) == len(told)
    for line in found.itertuples():
        assert line.value == pytest.approx(told[line.client, line.task, line.metric], rel=1e-4)
    assert {"skill", "baseline", "r2"} <= set(table["metric"])


def test_predictions_have_the_scores_that_were_told(polyfed, home):
    assert polyfed("export", "run", "--predictions", "predictions.parquet", "--scores", "scores.parquet").code == 0
    table, scores = pd.read_parquet(home / "predictions.parquet"), pd.read_parquet(home / "scores.parquet")
    scores = scores[(scores["part"] == "test") & (scores["model"] == "personal") & (scores["round"] == 2)]
    told = scores.set_index(["client", "task", "metric"])["value"]
    for client, of_client in table.groupby("client"):
        pulse, sick = (of_client[of_client["task"] == task] for task in ("pulse", "sick"))
        assert np.sqrt(np.mean((pulse["mean"] - pulse["true"]) ** 2)) == pytest.approx(told[client, "pulse", "rmse"])
        assert (sick["true_class"] == sick["predicted_class"]).mean() == pytest.approx(told[client, "sick", "accuracy"])
        assert set(sick["true_class"]) <= {"yes", "no"}
        assert sick["probability"].between(0.5, 1).all()


def test_a_model_predicts_without_its_run(polyfed, home):
    before = pf.load("run").client("bern").predict(NEW)
    done = polyfed("export", "run", "--model", "bern.safetensors", "--client", "bern", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["model"], document["client"], document["scores"]) == ("bern.safetensors", "bern", None)
    shutil.rmtree(home / "run")
    model = pf.load_model("bern.safetensors")
    after = model.predict(NEW)
    np.testing.assert_array_equal(after["pulse"].mean, before["pulse"].mean)
    np.testing.assert_array_equal(after["pulse"].std, before["pulse"].std)
    np.testing.assert_array_equal(after["sick"].proba, before["sick"].proba)
    content = (home / "bern.safetensors").read_bytes()
    assert b"basel" not in content, "nobody else is in it"
    assert b"thun" not in content


def test_a_late_joining_client_has_a_model_too(polyfed, home):
    (home / "chur.csv").write_text("age,pulse,sick\n33,77,no\n60,91,yes\n44,81,no\n")
    assert polyfed("join", "run", "chur.csv", "--name", "chur").code == 0
    before = pf.load("run").client("chur").predict(NEW)
    assert polyfed("export", "run", "--model", "chur.model", "--client", "chur").code == 0
    np.testing.assert_array_equal(pf.load_model("chur.model").predict(NEW)["pulse"].mean, before["pulse"].mean)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda content: content[:-100], "cannot be read"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "is damaged (its digest does not fit)"),
        (lambda content: content.replace(b"bern", b"thin"), "is damaged (its digest does not fit)"),
        (lambda content: b"age,pulse\n1,2\n", "is no model of polyfed"),
        (lambda content: b"", "is no model of polyfed"),
        (lambda content: (5).to_bytes(8, "little") + b"[1,2]", "is no model of polyfed"),
        (lambda content: (2**63).to_bytes(8, "little") + content[8:], "is no model of polyfed"),
    ],
)
def test_a_damaged_model_is_rejected_in_a_sentence(polyfed, home, damage, sentence):
    assert polyfed("export", "run", "--model", "m", "--client", "bern").code == 0
    content = (home / "m").read_bytes()
    (home / "m").write_bytes(damage(content))
    with pytest.raises(DataError) as caught:
        pf.load_model("m")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "it is not said what to export; give --scores, --predictions, --model, --mlflow or --tensorboard"),
        (["--scores", "a.xlsx"], 2, "a.xlsx: is not a kind of table that can be written; end it in .csv or .parquet"),
        (["--scores", "no/a.csv"], 2, "no: there is no such folder"),
        (["--model", "m"], 2, "it is not said whose model to export; give --client with one of basel, bern, thun"),
        (["--model", "m", "--client", "zug"], 3, "client 'zug' is unknown"),
        (["--model", "no/m", "--client", "bern"], 2, "no: there is no such folder"),
        (["--model", "run", "--client", "bern"], 2, "run: is a folder; give a file"),
        (["--client", "bern", "--scores", "a.csv"], 2, "--client is given without --model"),
    ],
)
def test_wrong_wishes_are_rejected_and_leave_nothing(polyfed, home, arguments, code, sentence):
    before = sorted(path.name for path in home.iterdir())
    done = polyfed("export", "run", *arguments)
    assert done.code == code, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert sorted(path.name for path in home.iterdir()) == before


def test_a_model_of_all_rows_is_not_handed_over(polyfed, home):
    run = ["run", "--data", "hospitals.csv", "--client", "ward", "--regression", "pulse", "--features", "age"]
    run += ["--method", "sklearn-linear-pooled", "--rounds", "1", "--out", "all", "--no-report", "--quiet"]
    assert polyfed(*run).code == 0
    done = polyfed("export", "all", "--model", "m", "--client", "bern")
    assert (done.code, done.err) == (
        2,
        "error: export: a model of sklearn-linear-pooled holds the rows of all clients; "
        "export a model of a method that keeps clients apart.\n",
    )


def test_tensorboard_reads_what_was_logged(polyfed, home):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = polyfed("export", "run", "--tensorboard", "logs")
    assert done.code == 0, done.err
    events = EventAccumulator(str(home / "logs" / "run"))
    events.Reload()
    assert [one.step for one in events.Scalars("rounds/bound")] == [1, 2]
    told = pf.load("run").averages()["pulse"]["rmse"]["mean"]
    assert events.Scalars("test/pulse/rmse")[-1].value == pytest.approx(told, rel=1e-6)
    assert "is there already" in polyfed("export", "run", "--tensorboard", "logs").err


def test_mlflow_reads_what_was_logged(polyfed, home, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder in place of a server
    uri = (home / "mlruns").as_uri()
    done = polyfed("export", "run", "--mlflow", uri, "--json")
    assert done.code == 0, done.err
    client, run = MlflowClient(tracking_uri=uri), json.loads(done.out)["mlflow"]
    made = client.get_run(run)
    assert made.data.params["method"] == pf.load("run").method.name
    assert (made.data.params["rounds"], made.info.status) == ("2", "FINISHED")
    assert [one.step for one in client.get_metric_history(run, "rounds/bound")] == [1, 2]
    told = pf.load("run").averages()["pulse"]["rmse"]["mean"]
    assert made.data.metrics["test/pulse/rmse"] == pytest.approx(told)


@pytest.mark.parametrize("option", ["--mlflow", "--tensorboard"])
def test_a_tracker_that_is_not_installed_is_named(polyfed, home, monkeypatch, option):
    for module in ("mlflow", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    done = polyfed("export", "run", option, "there")
    assert done.code == 6
    assert f"pip install 'polyfed[{option[2:]}]'" in done.err
