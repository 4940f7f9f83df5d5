"""Weights of labels in every method: labels that count w times are the same labels w times.

Weights have mean one, so n labels of weights w·n/N are N labels of which each counts n/N: `power` for Gaussian processes,
nothing for a mean loss, and a penalty that is as much larger for sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from federations import START
from method_toys import spec_of
from polyfed.data import ClientData, LabelCodec, Task
from polyfed.engine.members import Members, pooled
from polyfed.errors import ConfigError
from polyfed.methods import Job, known_methods, method
from polyfed.methods.bayesian_heads.uncertain_heads import expected_loss
from polyfed.methods.neural.cohorts import Labels
from polyfed.methods.neural.pfedfda import Gaussians, estimated
from polyfed.seeds import Stream

METHODS = known_methods()

N = 15
FULL = {"batch_size": 1000, "hidden": (4,)}
CLASSES = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c")}


def labels(kinds, power=1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, 2))
    f = x[:, 0] + 0.3 * rng.standard_normal(N)
    of_kind = {
        "regression": f,
        "robust": f + 0.2,
        "binary": np.where(f > 0, 1.0, -1.0),
        "multiclass": np.digitize(f, [-0.4, 0.4]).astype(float),
        "count": np.floor(np.exp(f)),
        "proportion": np.stack([np.digitize(f, [-0.5, 0, 0.5]), np.full(N, 5)], 1).astype(float),
    }
    tasks = [Task(kind, kind, power=power) for kind in kinds]
    codecs = {task.name: LabelCodec(task, CLASSES.get(task.kind), 0.0, 1.0) for task in tasks}
    return x, {kind: of_kind[kind] for kind in kinds}, codecs


def weighted_and_repeated(kinds, *, powered):
    """One client whose labels have weights, and one that has them as often."""
    x, y, codecs = labels(kinds)
    times = np.random.default_rng(1).integers(1, 4, N)
    share = N / times.sum()
    seen = {task: (np.arange(N), of) for task, of in y.items()}
    one = ClientData(x, seen, codecs, weights=dict.fromkeys(codecs, times * share))
    _, _, others = labels(kinds, share if powered else 1.0)
    rows = np.repeat(np.arange(N), times)
    two = ClientData(x, {task: (rows, of[rows]) for task, of in y.items()}, others)
    return one, two, share


def predictions(made, data, rounds=1):
    """Of one client after some rounds by itself."""
    server, state = made.init(spec_of({"c": data}), START), made.start(data, START)
    for k in range(rounds):
        (outcome,) = made.local_many(
            [Job("c", state, made.broadcast(server, "c"), data, Stream(0, "local", k + 1, "c"))]
        )
        if isinstance(outcome, Exception):
            raise outcome
        state, update = outcome
        assert made.objection(server, update) is None
        server = made.aggregate(server, {"c": update})
    found = made.predictor(server, state, data)(np.random.default_rng(2).standard_normal((5, 2)))
    return np.concatenate([_numbers(prediction).ravel() for prediction in found.values()])


def _numbers(prediction):
    if hasattr(prediction, "class_proba"):
        return prediction.class_proba
    return np.concatenate([prediction.mean, prediction.std])


KINDS = ("regression", "robust", "binary", "multiclass", "count", "proportion")


@pytest.mark.parametrize("name", ["pfed-mul", "pfed-hier", "pfed-st"])
def test_gaussian_processes(name):
    one, two, _ = weighted_and_repeated(KINDS, powered=True)
    made = method(name, **({"wide": 1} if name == "pfed-hier" else {}))
    assert predictions(made, one) == pytest.approx(predictions(made, two), rel=2e-5, abs=2e-5)
    assert predictions(made, one) != pytest.approx(predictions(made, replace(one, weights={})), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", ["fedavg", "fedper", "ditto", "fedbabu", "fedrod", "scaffold", "pfedme", "fedpac"])
def test_networks(name):
    one, two, _ = weighted_and_repeated(KINDS, powered=False)
    made = method(name, **FULL)
    assert predictions(made, one, 2) == pytest.approx(predictions(made, two, 2), rel=1e-6, abs=1e-6)
    assert predictions(made, one, 2) != pytest.approx(
        predictions(made, replace(one, weights={}), 2), rel=1e-3, abs=1e-3
    )


def test_processes_on_features_of_a_network():
    one, two, _ = weighted_and_repeated(("regression", "robust", "binary", "count", "proportion"), powered=True)
    made = method("pfedgp", objective="marginal", **FULL)
    found, wanted = (predictions(made, data, 0) for data in (one, two))  # before any step, whose loss is by label
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    assert predictions(made, one) != pytest.approx(predictions(made, replace(one, weights={})), rel=1e-3, abs=1e-3)
    assert not method("pfedgp", inference="gibbs").takes_weights


def test_sums_of_ridge_regression():
    one, two, share = weighted_and_repeated(("regression", "robust", "binary", "multiclass", "count"), powered=False)
    found = predictions(method("fed3r", penalty=0.3, own_penalty=0.2), one, 1)
    wanted = predictions(method("fed3r", penalty=0.3 / share, own_penalty=0.2 / share), two, 1)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_gaussians_of_classes():
    rng = np.random.default_rng(3)
    h, y, times = torch.from_numpy(rng.standard_normal((N, 2))), np.arange(N) % 3, rng.integers(1, 4, N)
    nothing = Gaussians(torch.zeros(3, 2).double(), torch.eye(2).double(), torch.zeros(3).double())
    groups = torch.from_numpy(np.eye(3)[y])
    one = estimated(h, torch.from_numpy(times * 0.4)[:, None] * groups, nothing, ridge=0.1)
    rows = np.repeat(np.arange(N), times)
    two = estimated(h[rows], groups[rows], nothing, ridge=0.1)
    torch.testing.assert_close(one.means, two.means)
    torch.testing.assert_close(one.covariance, two.covariance)
    made, (data, _, _) = method("pfedfda", **FULL), weighted_and_repeated(KINDS, powered=False)
    assert predictions(made, data) != pytest.approx(predictions(made, replace(data, weights={})), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_of_heads(kind):
    _, y, codecs = labels((kind,))
    y, rng, times = torch.from_numpy(y[kind]), np.random.default_rng(4), np.random.default_rng(1).integers(1, 4, N)
    k = 3 if kind == "multiclass" else 1
    q = (torch.from_numpy(rng.standard_normal((k, 3))), torch.zeros(k, 3).double())
    h, draws = torch.from_numpy(rng.standard_normal((N, 3))), torch.from_numpy(rng.standard_normal((2, k, 3)))
    rows = torch.from_numpy(np.repeat(np.arange(N), times))
    noise, weights = torch.tensor(0.3).double(), torch.from_numpy(times.astype(float))
    one = expected_loss(q, h, Labels.of(y, codecs[kind], weights), noise, draws)
    two = expected_loss(q, h[rows], Labels.of(y[rows], codecs[kind]), noise, draws)
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    data, _, _ = weighted_and_repeated((kind,), powered=False)
    made = method("pfedvem", **FULL)
    assert predictions(made, data) != pytest.approx(predictions(made, replace(data, weights={})), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", ["sklearn-hgb-pooled", "sklearn-linear-pooled", "sklearn-rf-local", "catboost-pooled"])
def test_rivals(name):
    """Labels of nearly no weight are none: where they are, the model says what the others do."""
    if name.startswith("catboost"):
        pytest.importorskip("catboost")
    x, y, codecs = labels(KINDS)
    wrong = np.arange(N) % 3 == 0
    turned = {"regression": 9 - y["regression"], "binary": -y["binary"], "count": 50 + y["count"]}
    bad = {kind: np.where(wrong, turned[kind], of) if kind in turned else of for kind, of in y.items()}
    data = ClientData(
        np.column_stack([x, np.zeros(N)]) if METHODS[name].needs_client else x,
        {kind: (np.arange(N), of) for kind, of in bad.items()},
        codecs,
        weights=dict.fromkeys(codecs, np.where(wrong, 1e-9, 1.5)),
    )
    few = {"sklearn-hgb-pooled": {"min_samples_leaf": 2}}.get(name, {})
    made = method(name, **few)
    server = made.init(spec_of({"c": data}), START)
    new = data.x[wrong]
    found = made.predictor(server, {}, data)(new)
    careless = made.predictor(server, {}, replace(data, weights={}))(new)
    far = [np.abs(made["regression"].mean - y["regression"][wrong]).mean() for made in (found, careless)]
    assert far[0] < far[1] / 3
    assert found["count"].mean.max() < careless["count"].mean.mean()
    sides = (y["binary"][wrong] > 0).astype(int)
    right = [made["binary"].class_proba[np.arange(len(sides)), sides].mean() for made in (found, careless)]
    assert right[0] > right[1]


def test_pooled_rows_keep_their_weights():
    one, _, _ = weighted_and_repeated(("regression",), powered=False)
    together = pooled([one, replace(one, weights={})])
    assert together.weights["regression"].tolist() == [*one.weights["regression"], *np.ones(N)]


@pytest.mark.parametrize("name", ["pfed-mul-published", "sklearn-gp-local", "mixed-effects"])
def test_methods_without_weights_say_so(name):
    import polyfed as pf

    rng = np.random.default_rng(0)
    task = Task("sick", "binary", class_weights="balanced")
    clients = {c: (rng.standard_normal((20, 2)), {"sick": ["no"] * 15 + ["yes"] * 5}) for c in "ab"}
    study = pf.Federation.from_clients(clients, [task]).prepare(0)
    with pytest.raises(ConfigError) as told:
        Members.of(METHODS[name](), study)
    assert str(told.value) == (
        f"method {name!r}: labels have weights, which it does not know; "
        "leave weights and class_weights out, or choose another method."
    )


@pytest.mark.parametrize("name", ["pfedme", "pfedvem"])
def test_clients_that_train_side_by_side_keep_their_weights(name):
    one, _, _ = weighted_and_repeated(KINDS, powered=False)
    data = {"a": one, "b": replace(one, weights={}), "c": replace(one, x=one.x[::-1].copy())}
    made = method(name, hidden=(4,), batch_size=6)
    server = made.init(spec_of(data), START)
    jobs = [
        Job(c, made.start(d, START), made.broadcast(server, c), d, Stream(0, "local", 1, c)) for c, d in data.items()
    ]
    for job, outcome in zip(jobs, made.local_many(jobs), strict=True):
        assert not isinstance(outcome, Exception)
        _, alone = made.local(job.state, job.message, job.data, job.stream)
        for key, value in alone.arrays.items():
            torch.testing.assert_close(outcome[1].arrays[key], value, rtol=1e-9, atol=1e-9)
        for key, pair in alone.pooled.items():
            torch.testing.assert_close(torch.stack(outcome[1].pooled[key]), torch.stack(pair), rtol=1e-9, atol=1e-9)
