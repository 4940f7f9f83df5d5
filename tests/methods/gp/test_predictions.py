"""Many clients are predicted in batches and from where training ended: each as its own predictor would."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyfed as pf
from polyfed.engine import evaluation
from polyfed.engine.evaluation import evaluate, measured
from polyfed.methods.base import Method, Question
from polyfed.methods.gp import model as gp_predictions
from polyfed.methods.gp.model import PosteriorPredictor

TASKS = {"height": "regression", "high": "binary", "kind": "multiclass"}


def federation(sizes, seed=0):
    rng = np.random.default_rng(seed)

    def client(n):
        x = rng.uniform(-2, 2, (n, 2))
        f = np.sin(x[:, 0]) + 0.3 * rng.standard_normal()
        return x, {"height": f + 0.1 * rng.standard_normal(n), "high": f > 0, "kind": np.digitize(f, [-0.5, 0.5])}

    return pf.Federation.from_clients({f"c{i}": client(n) for i, n in enumerate(sizes)}, TASKS)


def questions_of(run, rng):
    for name in run.clients:
        state, data = run.members.state(run.federation_state, name), run.prepared.clients[name].train
        yield Question(state, data, rng.uniform(-2, 2, (int(rng.integers(1, 7)), 2)))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("pfed-hier", {"n_points": 8}),
        ("pfed-hier", {"n_points": 8, "kernel": ["linear", "matern32", "rbf", "rbf"], "n_shared": 2, "n_personal": 2}),
        ("pfed-mul", {"scheme": "W", "per_dimension": True}),
        ("pfed-mul", {"projection": 1}),
        ("pfed-mul", {"inducing": 12}),
        ("pfed-st", {}),
        ("local", {"mean": "linear"}),
    ],
)
def test_each_client_is_told_what_its_own_predictor_says(method, options):
    run = pf.simulate(method, federation([12, 25, 11, 26, 0 + 12]), rounds=2, evaluate_every=0, **options)
    asked = list(questions_of(run, np.random.default_rng(0)))
    asked.append(Question(None, asked[0].data, asked[0].x))  # what the server alone says
    together = run.method.predict_many(run.federation_state.server, asked)
    alone = Method.predict_many(run.method, run.federation_state.server, asked)
    for mine, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(mine["height"].mean, theirs["height"].mean, rtol=0, atol=1e-4)
        np.testing.assert_allclose(mine["height"].std, theirs["height"].std, rtol=1e-4)
        np.testing.assert_allclose(mine["high"].proba, theirs["high"].proba, rtol=0, atol=1e-4)
        np.testing.assert_allclose(mine["kind"].proba, theirs["kind"].proba, rtol=0, atol=1e-4)


def test_inference_begins_where_training_ended(monkeypatch):
    run = pf.simulate("pfed-hier", federation([20, 20]), rounds=30, evaluate_every=0, n_points=8, halve_every=2)
    steps, infer = {}, gp_predictions.infer
    for label in ("warm", "cold"):
        found = steps.setdefault(label, [])
        monkeypatch.setattr(
            gp_predictions, "infer", lambda *a, into=found, **k: into.append(infer(*a, **k)) or into[-1]
        )
        if label == "cold":
            monkeypatch.setattr(PosteriorPredictor, "begin_at", lambda self, start: None)
        run.method.predict_many(run.federation_state.server, list(questions_of(run, np.random.default_rng(0))))
    lengths = {label: sum(len(one.history) for one in found) for label, found in steps.items()}
    assert lengths["warm"] < lengths["cold"]


def test_where_training_saw_other_rows_it_begins_anew():
    run = pf.simulate("pfed-mul", federation([20, 30]), rounds=1, evaluate_every=0)
    state, other = run.federation_state.clients["c0"], run.prepared.clients["c1"].train
    (mine,) = run.method.predict_many(run.federation_state.server, [Question(state, other, other.x)])
    theirs = run.method.predictor(run.federation_state.server, state, other)(other.x)
    np.testing.assert_allclose(mine["height"].mean, theirs["height"].mean, atol=1e-4)
    own = run.prepared.clients["c0"].train
    for wrong in ({"warm/m": torch.full_like(state["warm/m"], torch.nan)}, {"warm/v": -state["warm/v"]}):
        (found,) = run.method.predict_many(run.federation_state.server, [Question({**state, **wrong}, own, own.x)])
        usual = run.method.predictor(run.federation_state.server, state, own)(own.x)
        np.testing.assert_allclose(found["height"].mean, usual["height"].mean, atol=1e-4)


def test_of_very_many_clients_a_part_is_measured_until_the_last_round(monkeypatch):
    monkeypatch.setattr(evaluation, "MANY", 5)
    monkeypatch.setattr(evaluation, "MEASURED", 3)
    monkeypatch.setattr(evaluation, "AT_ONCE", 2)
    run = pf.simulate("pfed-hier", federation([12] * 6), rounds=2, evaluate_every=1, n_points=4)
    seen = {(e["round"], e["model"]): sorted(e["clients"]) for e in run.events if e["event"] == "evaluation"}
    part = measured(run.members)
    assert len(part) == 3
    assert seen == {(1, "personal"): part, (1, "global"): part, (2, "personal"): run.clients, (2, "global"): part}


def test_groups_of_clients_change_no_score(monkeypatch):
    run = pf.simulate("pfed-mul", federation([12, 20, 14, 16]), rounds=1)
    whole = evaluate(run.federation_state, run.members)
    monkeypatch.setattr(evaluation, "AT_ONCE", 1)
    for one, other in zip(whole, evaluate(run.federation_state, run.members), strict=True):
        for client, tasks in one["clients"].items():
            for task, metrics in tasks.items():
                for metric, value in metrics.items():
                    assert other["clients"][client][task][metric] == pytest.approx(value, abs=1e-6, nan_ok=True), metric


def test_one_model_that_serves_all_is_found_once(monkeypatch):
    run = pf.simulate("pooled", federation([12, 20]), rounds=1, evaluate_every=0)
    made, predictor = [], type(run.method).predictor
    monkeypatch.setattr(
        type(run.method), "predictor", lambda self, *a: made.append(predictor(self, *a)) or made[-1], raising=False
    )
    (event,) = evaluate(run.federation_state, run.members)
    assert len(made) == 1
    monkeypatch.undo()
    own = run.client("c1").predict(run.prepared.clients["c1"].test.x)  # features have been scaled once: see `encode`
    assert sorted(event["clients"]) == ["c0", "c1"]
    assert len(own["height"].mean) == len(run.prepared.clients["c1"].test.x)
