"""Runs as users see them: scores, clients, newcomers, folders; and that nothing depends on what should not matter."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import polyfed as pf
from federations import TASKS, make_federation, people
from polyfed.data import SCALINGS
from polyfed.engine.members import pooled
from polyfed.errors import UnknownNameError
from polyfed.methods import known_methods

METHODS = known_methods()

FOR_ALL_KINDS = sorted(name for name, made in METHODS.items() if made.kinds is None)
X_NEW = np.array([[0.3, 0.1], [-2.0, 1.0]])


def states_of(run):
    return {f"server/{n}": v for n, v in run.federation_state.server.items()} | {
        f"{client}/{n}": v for client, state in run.federation_state.clients.items() for n, v in state.items()
    }


def assert_same(a, b, atol):
    first, second = states_of(a), states_of(b)
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=0, atol=atol, msg=lambda text, n=name: f"{n}: {text}")


# ---- the same seed, the same result ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FOR_ALL_KINDS)
def test_the_same_seed_gives_the_same_run_to_the_last_bit(method, federation):
    a, b = (pf.simulate(method, federation, rounds=4, seed=1, sample=None) for _ in range(2))
    assert_same(a, b, atol=0)
    assert a.events == b.events


@pytest.mark.parametrize("method", ["pfed-mul", "pfed-st", "local"])
@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_neither_order_nor_batching_nor_threads_matter(method, mode):
    options = {"rounds": 4, "seed": 2, "sample": 3, "mode": mode}
    expected = pf.simulate(method, make_federation(), **options)
    assert_same(expected, pf.simulate(method, make_federation(reverse=True), **options), atol=0)
    assert_same(expected, pf.simulate(method, make_federation(), workers=3, **options), atol=0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert_same(expected, pf.simulate(method, make_federation(), workers=2, **options), atol=1e-12)
    finally:
        torch.set_num_threads(before)


def test_another_seed_gives_another_run(federation):
    a, b = (pf.simulate("pfed-mul", federation, rounds=2, seed=seed) for seed in (0, 1))
    assert not torch.equal(
        a.federation_state.server["theta/mixing.high"], b.federation_state.server["theta/mixing.high"]
    )


# ---- what a run shows --------------------------------------------------------------------------------------------


def test_the_summary_has_clients_tasks_and_their_mean(federation):
    run = pf.simulate("pfed-mul", federation, rounds=6, seed=0, evaluate_every=2)
    table = run.summary()
    assert list(table.columns) == [("height", "rmse"), ("high", "accuracy"), ("visits", "rmse")]
    assert list(table.index) == ["client 0", "client 1", "client 2", "client 3"]
    assert pd.isna(table.loc["client 1", ("visits", "rmse")])  # it has no such label
    below = run.averages()
    assert list(below.index) == ["mean", "std", "clients"]
    for column in table.columns:
        values = [value for value in table[column] if not pd.isna(value)]
        assert below.loc["mean", column] == pytest.approx(np.mean(values))
        assert below.loc["std", column] == pytest.approx(np.std(values, ddof=1))
        assert below.loc["clients", column] == len(values)
    everything = run.summary("all")
    assert ("height", "coverage") in everything.columns
    assert set(run.history["round"]) == {2, 4, 6}
    assert set(run.history["part"]) == {"validation", "test"}
    assert run.summary(at=6).equals(run.summary(at="last"))
    assert not run.summary(at=2).equals(run.summary(at="last"))


def test_scores_are_in_the_users_units(federation):
    run = pf.simulate("pfed-mul", federation, rounds=3, seed=0)
    data = run.prepared.clients["client 0"].test
    at, _ = data.labels["height"]
    codec = data.codecs["height"]
    truth = codec.shift + codec.scale * data.labels["height"][1]
    assert 80 < truth.mean() < 120
    raw = run.prepared.encoders["client 0"].scaler
    x = data.x[at] * raw.scale + raw.mean
    error = run.client("client 0").predict(x)["height"].mean - truth
    assert run.summary().loc["client 0", ("height", "rmse")] == pytest.approx(np.sqrt(np.mean(error**2)))


def test_best_is_chosen_on_validation_rows_alone(federation):
    run = pf.simulate("pfed-mul", federation, rounds=6, seed=0, evaluate_every=1)
    losses = run.history[(run.history["part"] == "validation") & run.history["metric"].isin(["nll", "nlpd"])]
    by_round = losses.groupby(["round", "task"])["value"].mean().groupby("round").sum()
    assert run.summary(at="best").equals(run.summary(at=int(by_round.idxmin())))


def test_personal_and_global_models(federation):
    run = pf.simulate("pfed-mul", federation, rounds=4, seed=0, scheme="K")
    assert set(run.history["model"]) == {"personal", "global"}
    assert not run.summary(model="global").equals(run.summary())
    shared = pf.simulate("pfed-mul", federation, rounds=4, seed=0)
    assert shared.summary(model="global").equals(shared.summary())  # all is shared: there is but one model


def test_rounds_and_bytes(federation):
    run = pf.simulate("pfed-mul", federation, rounds=3, seed=0, sample=2)
    assert run.rounds["sampled"].tolist() == [2, 2, 2]
    assert (run.rounds[["bytes_down", "bytes_up"]] > 0).all().all()
    nothing = pf.simulate("local", federation, rounds=2, seed=0)
    assert nothing.rounds["bytes_up"].max() < run.rounds["bytes_up"].min()
    assert run.events[0]["bytes_up"] == sum(run.prepared.round0_bytes.values()) > 0


def test_events_are_handed_on_as_they_happen(federation):
    seen = []
    run = pf.simulate("pfed-mul", federation, rounds=2, seed=0, on_event=seen.append)
    assert [event["event"] for event in seen] == [event["event"] for event in run.events[1:]]


def test_pooling_is_one_model_of_all_rows(federation):
    run = pf.simulate("pooled", federation, rounds=3, seed=0)
    together = pooled([parts.train for parts in run.prepared.clients.values()])
    assert together.n_labels == sum(parts.train.n_labels for parts in run.prepared.clients.values())
    a, b = (run.client(name).predict(X_NEW)["height"].mean for name in ("client 0", "client 1"))
    np.testing.assert_array_equal(a, b)
    with pytest.raises(pf.ConfigError, match="puts all data together, but each client scales its own"):
        pf.simulate("pooled", federation.with_options(scaling="local"), rounds=1)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("method", ["pfed-mul", "pfed-st", "local"])
def test_every_scaling(method, scaling, federation):
    run = pf.simulate(method, federation.with_options(scaling=scaling), rounds=3, seed=0)
    p = run.client("client 1").predict(X_NEW)
    assert set(p) == set(TASKS)
    assert np.isfinite(p.to_frame().select_dtypes("number")).all().all()


# ---- clients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FOR_ALL_KINDS)
def test_a_newcomer_needs_no_round(method, federation):
    run = pf.simulate(method, federation, rounds=5, seed=0)
    server = dict(run.federation_state.server)
    new = run.join("bern", people(np.random.default_rng(5), 12, lacks=("visits",)))
    p = new.predict(X_NEW)
    assert set(p) == set(TASKS)
    assert p["visits"].mean.shape == (2,)
    assert run.clients[-1] == "bern"
    assert all(torch.equal(value, server[name]) for name, value in run.federation_state.server.items())
    with pytest.raises(pf.DataError, match="client 'bern' is there already"):
        run.join("bern", people(np.random.default_rng(5), 12))


def test_an_unknown_client_gets_the_nearest_name(federation):
    run = pf.simulate("pfed-mul", federation, rounds=1, seed=0)
    with pytest.raises(UnknownNameError, match="client 'client 9' is unknown; did you mean 'client "):
        run.client("client 9")


def test_a_client_that_was_never_sampled_has_a_model(federation):
    run = pf.simulate("pfed-mul", federation, rounds=1, seed=0, sample=1, scheme="K")
    (sampled,) = run.events[1]["sampled"]
    other = next(name for name in run.clients if name != sampled)
    assert other not in run.federation_state.clients
    assert sorted([*run.untrained, sampled]) == sorted(run.clients)
    assert np.isfinite(run.client(other).predict(X_NEW)["height"].mean).all()


# ---- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FOR_ALL_KINDS)
def test_a_saved_run_predicts_the_same_and_goes_on_the_same(method, federation, tmp_path):
    run = pf.simulate(method, federation, rounds=3, seed=0)
    run.join("bern", people(np.random.default_rng(5), 12))
    run.save(tmp_path / "run")
    again = pf.load(tmp_path / "run")
    assert again.clients == run.clients
    for name in ("client 1", "bern"):
        a, b = (r.client(name).predict(X_NEW)["height"].mean for r in (run, again))
        np.testing.assert_array_equal(a, b)
    assert again.summary().equals(run.summary())
    assert_same(run.resume(5), again.resume(5), atol=0)


def test_a_folder_makes_no_difference(federation, tmp_path):
    a = pf.simulate("pfed-mul", federation, rounds=4, seed=0)
    b = pf.simulate("pfed-mul", federation, rounds=4, seed=0, folder=tmp_path / "run")
    assert_same(a, b, atol=0)
    assert a.events == b.events == pf.load(tmp_path / "run").events


def test_a_run_is_not_overwritten_nor_mixed_with_another(federation, tmp_path):
    folder = tmp_path / "run"
    pf.simulate("pfed-mul", federation, rounds=1, seed=0, folder=folder)
    with pytest.raises(pf.UsageError, match="there is a run in it already; resume it, or choose a folder that is new"):
        pf.simulate("pfed-mul", federation, rounds=1, seed=0, folder=folder)
    for changed, text in (
        ({"seed": 1}, "seed"),
        ({"seed": 0, "n_latents": 3}, "options"),
        ({"seed": 0, "sample": 2}, "sample"),
    ):
        with pytest.raises(pf.ConfigError, match=f"the run there differs in {text}"):
            pf.simulate("pfed-mul", federation, rounds=2, folder=folder, resume=True, **changed)
    with pytest.raises(pf.ConfigError, match="the run there differs in data"):
        pf.simulate("pfed-mul", make_federation(seed=9), rounds=2, seed=0, folder=folder, resume=True)
    assert pf.simulate("pfed-mul", federation, rounds=3, seed=0, folder=folder, resume=True).federation_state.round == 3


def test_no_run_in_a_folder(tmp_path):
    with pytest.raises(pf.DataError, match=r"there is no run\.json; give the folder of a run"):
        pf.load(tmp_path)


def test_options_beside_a_method(federation):
    from polyfed.methods import PFedMul

    with pytest.raises(pf.ConfigError, match="option 'n_latents' beside a Method; give it to the method itself"):
        pf.simulate(PFedMul(), federation, n_latents=3)
    with pytest.raises(pf.ConfigError, match="method 'pfed-mull' is unknown; did you mean 'pfed-mul'"):
        pf.simulate("pfed-mull", federation)
    with pytest.raises(pf.ConfigError, match="method 'pfed-mul' has no option 'latents'; did you mean 'n_latents'"):
        pf.simulate("pfed-mul", federation, latents=3)


# ---- results for a report ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FOR_ALL_KINDS)
def test_results_agree_with_the_scores(method, federation, tmp_path):
    run = pf.simulate(method, federation, rounds=3, seed=0, folder=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert found["part"] == "test"
    assert found["latents"] is None  # two features
    height = found["predictions"]["client 0"]["height"]
    rmse = np.sqrt(np.mean((np.array(height["mean"]) - height["y"]) ** 2))
    assert rmse == pytest.approx(run.summary().loc["client 0", ("height", "rmse")])
    high = found["predictions"]["client 0"]["high"]
    right = np.mean(np.argmax(high["proba"], axis=1) == high["y"])
    assert right == pytest.approx(run.summary().loc["client 0", ("high", "accuracy")])
    assert found["tasks"]["high"] == {"kind": "binary", "classes": ["no", "yes"]}
    if method in ("pfed-mul", "pooled"):
        matrix = np.array(found["model"]["task_correlation"]["matrix"])
        np.testing.assert_allclose(np.diag(matrix), 1.0)
        assert set(found["model"]["noise"]) == {"height", "visits"}
    elif method == "local":  # nothing is shared, so the server has nothing to tell
        assert found["model"] == {"task_correlation": None, "length_scales": [], "noise": {}}


def test_latent_functions_are_in_the_users_units(tmp_path):
    from polyfed.data.datasets import load_dataset

    made = load_dataset("synthetic", n_clients=2, n_regression=20, n_binary=20)
    pf.simulate("pfed-mul", made, rounds=5, seed=0, folder=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "results.json").read_text())["latents"]["client 1"]
    assert found["regression"]["x"][-1] == 100.0
    assert found["regression"]["truth"] == made.truth["client 1"]["regression"].tolist()
    assert set(found["classification"]["seen"]["y"]) <= {0.0, 1.0}
    assert 0 <= min(found["regression"]["seen"]["x"]) < max(found["regression"]["seen"]["x"]) <= 100
