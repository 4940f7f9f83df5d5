"""A prior mean that a federation learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from federations import START, codecs_of, federation, my_networks, run_rounds
from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods import Job, PFedMul, known_methods, method
from polyfed.methods.checks import check_method
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.states import Served
from polyfed.methods.messages import ClientUpdate, strip_prefix

METHODS = known_methods()

KINDS = ("regression", "binary")
MEAN = {"features.mean", "features.mean_bias"}


def small(n_features):
    return nn.Sequential(nn.Linear(n_features, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture(autouse=True)
def _networks(monkeypatch):
    my_networks(monkeypatch, small=small)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pfed-mul", {"scheme": "N"}),
        ("pfed-mul", {"projection": 2, "mode": "average", "weight_decay": 0.1}),
        ("pfed-mul", {"scheme": ("kernels",)}),  # the mean is personal
        ("pfed-mul", {"inducing": 4}),
        ("pfed-st", {}),
    ],
    ids=str,
)
def test_the_contract_holds(name, options):
    check_method(METHODS[name](mean="linear", **options))


def test_it_is_one_of_the_features_and_starts_at_zero():
    spec, data = federation(2, kinds=(*KINDS, "multiclass"), n_features=2)
    plain, made = PFedMul(), PFedMul(mean="linear", scheme="N")
    assert not MEAN & set(strip_prefix(plain.init(spec, START), "theta"))
    server = made.init(spec, START)
    assert set(strip_prefix(server, "theta")) == MEAN
    assert server["theta/features.mean"].shape == (2, 5)  # an output for each of three classes
    assert not server["theta/features.mean"].any()
    assert not server["theta/features.mean_bias"].any()
    assert not plain.personalises
    assert made.personalises
    assert not PFedMul(mean="linear").personalises
    assert PFedMul(mean="linear", scheme=("kernels", "mixing", "noise")).personalises
    moved, _, updates = run_rounds(made, spec, data, rounds=2)
    assert moved["theta/features.mean"].all()
    assert {f"held_out/{name}" for name in MEAN} <= set(
        updates["client 0"].arrays
    )  # labels are kept apart, as from projections


def line(rng, n, codecs):
    x = rng.standard_normal((n, 6))
    seen = {"regression": (np.arange(n), 1.5 * x[:, 0] + 1.0), "binary": (np.arange(n), np.sign(x[:, 1]))}
    return ClientData(x, {task: seen[task] for task in codecs if n}, codecs)


@pytest.mark.parametrize("options", [{}, {"projection": 2}, {"mode": "average", "local_steps": 3}], ids=str)
def test_who_has_no_label_predicts_what_is_usual(options):
    """Six clients with ten labels of a linear function each; a seventh, without any, knows the line from them."""
    rng, codecs = np.random.default_rng(0), codecs_of(KINDS)
    data = {f"client {i}": line(rng, 10, codecs) for i in range(6)}
    spec = FederationSpec(tuple(codec.task for codec in codecs.values()), 6, tuple(data), codecs)
    made = PFedMul(mean="linear", **options)
    server, _, _ = run_rounds(made, spec, data, rounds=60)
    nobody, x = line(rng, 0, codecs), rng.standard_normal((200, 6))
    said = made.predictor(server, made.join(server, nobody, START), nobody)(x)
    truth = 1.5 * x[:, 0] + 1.0
    assert np.mean((said["regression"].mean - truth) ** 2) < 0.1 * truth.var()
    assert np.mean((said["binary"].latent_mean > 0) == (x[:, 1] > 0)) > 0.85


def test_with_a_network_all_at_once_is_one_by_one():
    spec, data = federation(3)
    made = PFedMul(mean="linear", network="my_networks:small", projection=2)
    server, states, _ = run_rounds(made, spec, data, rounds=2)
    jobs = [Job(name, states[name], made.broadcast(server, name), mine, START) for name, mine in data.items()]
    for job, outcome in zip(jobs, made.local_many(jobs), strict=True):
        assert not isinstance(outcome, Exception)
        _, alone = made.local(job.state, job.message, job.data, START)
        for name, value in alone.arrays.items():
            torch.testing.assert_close(outcome[1].arrays[name], value, rtol=1e-5, atol=1e-7)


def test_a_bias_on_which_labels_disagree_stops_itself_alone():
    spec, _ = federation(1, kinds=KINDS, whole=True)
    made, plain = PFedMul(mean="linear"), PFedMul(mean="linear", holdout=0.0)
    server, whole = made.init(spec, START), plain.init(spec, START)
    server["agreement/features.mean_bias"] = torch.zeros((), dtype=torch.float64)
    gradient = {name: torch.ones_like(value) for name, value in strip_prefix(server, "theta").items()}
    gradient["features.mean_bias"] = 100 * gradient["features.mean_bias"]  # of all that is sent, nearly everything
    kept = {
        "held_out/features.mean": gradient["features.mean"],
        "held_out/features.mean_bias": -gradient["features.mean_bias"],
    }
    noise = {name: (torch.ones(()), torch.ones(())) for name in strip_prefix(server, "pooled")}
    counts = dict.fromkeys(KINDS, 5)
    usual, moved = (
        one.aggregate(state, {"client": ClientUpdate(arrays, noise, 10.0, counts, {"bound": 0.0})})
        for one, state, arrays in ((plain, whole, gradient), (made, server, gradient | kept))
    )
    assert moved["theta/features.mean"].all()
    torch.testing.assert_close(moved["theta/features.mean"], usual["theta/features.mean"])
    assert not moved["theta/features.mean_bias"].any()
    assert float(moved["agreement/features.mean_bias"]) == pytest.approx(-0.3)


def test_each_output_has_a_second_moment_and_a_network_does_not_slow_it_down():
    """A first step has size one in the mean square of every column, however large its gradient is."""
    gradient = {"features.mean": torch.tensor([[3.0, 0.0], [4.0, 700.0]], dtype=torch.float64)}
    gradient["features.mean_bias"] = torch.tensor([5.0, -0.1], dtype=torch.float64)
    values = {name: torch.zeros_like(value) for name, value in gradient.items()}
    adam = Adam({"features": 0.001, "projection": 0.1})
    moved, _ = adam.step(values, gradient, adam.start(values))
    wanted = torch.tensor([[3 / 12.5**0.5, 0.0], [4 / 12.5**0.5, 2**0.5]], dtype=torch.float64)
    torch.testing.assert_close(moved["features.mean"], 0.1 * wanted)
    torch.testing.assert_close(moved["features.mean_bias"], torch.tensor([0.1, -0.1], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("pfed-mul", {"mean": "liner"}, "mean 'liner' is unknown; did you mean 'linear'?"),
        ("pfed-st", {"mean": 3}, "mean 3 is unknown"),
        ("pfed-mul", {"scheme": "N"}, "set projection, network or mean"),
        ("pfed-mul", {"mean": "linear", "mode": "average", "holdout": 0.3}, "use mode 'gradient'"),
        ("pfed-mul-published", {"mean": "linear"}, "mean is 'linear', and the published code has no such option"),
    ],
)
def test_what_cannot_be_is_rejected(name, options, text):
    with pytest.raises(ConfigError) as error:
        method(name, **options)
    assert text in str(error.value)


def unrelated(rng, n, codecs, dims=20):
    """A regression with little noise along one input, a class along another that has nothing to do with it."""
    x = rng.standard_normal((2 * n, dims))
    seen = {
        "regression": (np.arange(n), 1.5 * x[:n, 0] + 0.1 * rng.standard_normal(n)),
        "binary": (np.arange(n, 2 * n), np.sign(x[n:, 1])),
    }
    return ClientData(x, seen, codecs)


def test_a_task_is_not_lost_beside_one_with_larger_gradients():
    """Ten labels of each task at each of ten clients. With a mean of zero the class is guessed, whatever the features do."""
    rng, codecs = np.random.default_rng(0), codecs_of(KINDS)
    data = {f"client {i}": unrelated(rng, 10, codecs) for i in range(10)}
    spec = FederationSpec(tuple(codec.task for codec in codecs.values()), 20, tuple(data), codecs)
    x = rng.standard_normal((300, 20))
    found = {}
    for mean in (None, "zero"):
        made = PFedMul(n_latents=2, projection=2, mean=mean)
        server, states, _ = run_rounds(made, spec, data, rounds=30)
        said = [made.predictor(server, states[name], mine)(x)["binary"].latent_mean > 0 for name, mine in data.items()]
        found[mean] = np.mean([own == (x[:, 1] > 0) for own in said])
    assert found[None] > 0.75
    assert found["zero"] < 0.65


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "zero"),
        ({"projection": 2}, "linear"),
        ({"projection": 2, "mean": "zero"}, "zero"),
        ({"projection": 2, "mode": "average"}, "zero"),
        ({"projection": 2, "scheme": ("kernels", "mixing", "noise")}, "zero"),
        ({"projection": 2, "network": "my_networks:small"}, "zero"),
    ],
    ids=str,
)
def test_it_is_linear_where_the_server_learns_a_projection_of_inputs(options, expected):
    spec, _ = federation(1, kinds=KINDS)
    values = Served.from_arrays(PFedMul(**options).init(spec, START)).values
    assert ("features.mean" in values) == (expected == "linear")
