"""Partial dependence against rows that are changed by hand, and guesses against the labels that are there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.engine.effects import effects
from polyfed.engine.results import results

RNG = np.random.default_rng(0)


def table(n=24):
    age, sex = RNG.uniform(20, 80, n).round(1), RNG.choice(["f", "m"], n)
    pulse = 60 + age / 2 + 5 * (sex == "m") + RNG.normal(0, 1, n)
    frame = pd.DataFrame({"age": age, "sex": sex, "bmi": RNG.uniform(18, 35, n), "pulse": pulse})
    frame.loc[3, "bmi"] = np.nan  # so that there is a column that says what is missing
    frame["sick"] = np.where(age + RNG.normal(0, 8, n) > 50, "yes", "no")
    frame["stage"] = np.array(["a", "b", "c"])[np.digitize(age, [40, 60])]
    frame["visits"] = RNG.poisson(age / 20)
    return frame


@pytest.fixture(scope="module")
def frames():
    return {"basel": table(), "bern": table()}


@pytest.fixture(scope="module")
def run(frames):
    features = ["age", "sex", "bmi"]
    clients = {
        name: (frame[features], {t: frame[t] for t in ("pulse", "sick", "stage", "visits")})
        for name, frame in frames.items()
    }
    tasks = {"pulse": "regression", "sick": "binary", "stage": "multiclass", "visits": "count"}
    federation = pf.Federation.from_clients(clients, tasks, split=pf.Split(test=0.25))
    return pf.simulate("pfed-mul", federation, rounds=2, seed=0)


def expected(prediction, task):
    """What is averaged: the mean, the probability of the second class, or those of all."""
    if task == "stage":
        return prediction.proba
    return (prediction.proba if task == "sick" else prediction.mean)[:, None]


@pytest.mark.parametrize("name", ["age", "sex", "bmi"])
def test_an_effect_is_the_average_over_rows_that_are_changed_by_hand(run, frames, name):
    found = effects(run, "bern")
    train = run.prepared.clients["bern"].train
    numbers = run.prepared.encoders["bern"].scaler
    ages = numbers.mean[0] + numbers.scale[0] * train.x[:, 0]
    rows = frames["bern"].set_index("age").loc[ages.round(1)].reset_index()[["age", "sex", "bmi"]]
    for task, of_task in found.items():
        effect = next(one for one in of_task if one["input"] == name)
        for at in (0, len(effect["x"]) - 1):
            moved = run.client("bern").predict(rows.assign(**{name: effect["x"][at]}))
            by_hand = expected(moved[task], task).mean(axis=0)
            assert [curve["mean"][at] for curve in effect["curves"]] == pytest.approx(by_hand.tolist())


def test_an_input_that_is_the_same_in_all_rows_of_a_client_has_no_curve():
    frame = table(60).assign(size=7.0)
    clients = {
        "basel": (frame[["age", "size"]], {"pulse": frame["pulse"]}),
        "bern": (frame[["age"]].assign(size=np.append(1.0, np.full(len(frame) - 1, 3.0))), {"pulse": frame["pulse"]}),
    }
    federation = pf.Federation.from_clients(clients, {"pulse": "regression"}, split=pf.Split(test=0.0))
    run = pf.simulate("local", federation, rounds=1, seed=0)
    assert [one["input"] for one in effects(run, "basel")["pulse"]] == ["age"]
    nearly = next(one for one in effects(run, "bern")["pulse"] if one["input"] == "size")
    assert (nearly["x"][0], nearly["x"][-1]) == pytest.approx((1.0, 3.0))


def test_bands_hold_their_curves(run):
    for task, of_task in effects(run, "basel").items():
        for curve in (curve for one in of_task for curve in one["curves"]):
            assert (curve["lower"] is None) == (task == "stage"), "several classes have none"
            if curve["lower"] is not None:
                lower, mean, upper = (np.array(curve[key]) for key in ("lower", "mean", "upper"))
                assert (lower < mean).all()
                assert (mean < upper).all()


def test_rows_labels_and_classes_are_counted(run, frames):
    data = results(run)["data"]
    rows = {name: of["rows"]["train"] + of["rows"]["test"] for name, of in data.items()}
    assert rows == {name: len(frame) for name, frame in frames.items()}
    sick = data["bern"]["labels"]["sick"]
    assert sum(sick["classes"]) == sick["train"] == data["bern"]["rows"]["train"]
    y = run.prepared.clients["bern"].train.labels["sick"][1]
    assert sick["classes"] == [int((y < 0).sum()), int((y > 0).sum())]


def test_the_baseline_of_an_evaluation_is_a_guess_from_the_training_labels(run):
    scores = next(e for e in reversed(run.events) if e["event"] == "evaluation" and e["part"] == "test")["clients"]
    for client, parts in run.prepared.clients.items():
        labels = {
            part: {task: data.codecs[task].decode(y) for task, (_, y) in data.labels.items()}
            for part, data in (("train", parts.train), ("test", parts.test))
        }
        mean = labels["train"]["pulse"].mean()
        rmse = np.sqrt(np.mean((labels["test"]["pulse"] - mean) ** 2))
        assert scores[client]["pulse"]["baseline"] == pytest.approx(rmse)
        assert scores[client]["pulse"]["skill"] == pytest.approx(1 - (scores[client]["pulse"]["rmse"] / rmse) ** 2)
        majority = pd.Series(labels["train"]["stage"]).mode()[0]
        assert scores[client]["stage"]["baseline"] == pytest.approx(np.mean(labels["test"]["stage"] == majority))
