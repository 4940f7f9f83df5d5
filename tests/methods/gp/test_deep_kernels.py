"""A network and projections under the kernels, in a federation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from federations import START, federation, my_networks, run_rounds
from polyfed.errors import ConfigError
from polyfed.methods import PFedMul, known_methods
from polyfed.methods.checks import check_method
from polyfed.methods.messages import strip_prefix
from polyfed.nets import Network

METHODS = known_methods()


def small(n_features):
    return nn.Sequential(nn.Linear(n_features, 4), nn.Tanh(), nn.Linear(4, 3))


def half_frozen(n_features):
    trunk = small(n_features)
    nn.init.constant_(trunk[0].weight, 0.3)
    trunk[0].requires_grad_(False)
    return trunk


def normed(n_features):
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Tanh())


@pytest.fixture(autouse=True)
def _networks(monkeypatch):
    my_networks(monkeypatch, small=small, half_frozen=half_frozen, normed=normed)


@pytest.mark.parametrize(
    "options",
    [
        {"network": "my_networks:normed", "projection": 2, "scheme": "N"},
        {"network": "my_networks:half_frozen", "projection": 2, "mode": "average", "learning_rate": 0.01},
        {"network": "my_networks:small", "scheme": ("kernels",)},  # the network is personal
        {"network": "my_networks:small", "network_per_latent": True, "projection": 2, "scheme": "N", "chunk": 3},
        {"network": "my_networks:small", "network_per_latent": True, "weight_decay": 0.1, "mode": "average"},
    ],
    ids=str,
)
def test_the_contract_holds(options):
    check_method(PFedMul(**options))


def test_what_is_frozen_is_no_part_of_theta_and_stays():
    made = PFedMul(network="my_networks:half_frozen", projection=2)
    spec, data = federation(2)
    server, _, updates = run_rounds(made, spec, data, rounds=2)
    learned = {name for name in strip_prefix(server, "theta") if name.startswith("features.")}
    assert learned == {"features.2.weight", "features.2.bias", "features.projection"}
    assert server["theta/features.2.weight"].dtype == torch.float32
    assert {name for name in updates["client 0"].arrays if name.startswith("features.")} == learned
    frozen = made.model(data["client 0"]).prior.features[0].weight
    assert torch.equal(frozen, torch.full_like(frozen, 0.3))


@pytest.mark.parametrize("options", [{}, {"chunk": 3}], ids=str)
def test_the_gradient_goes_through_the_network(options):
    """Against finite differences of a client's bound, in float64 so that the differences mean something."""
    made = PFedMul(network="my_networks:small", projection=2, holdout=0.0, mf_steps=2000, tolerance=1e-13, **options)
    spec, data = federation(1, kinds=("regression", "binary"), whole=True)
    mine = data["client 0"]
    made.model(mine).prior.features.to(torch.float64)
    server = {name: value.to(torch.float64) for name, value in made.init(spec, START).items()}
    state = made.start(mine, START)

    def bound(server):
        _, update = made.local(state, made.broadcast(server, "client 0"), mine, START)
        return update

    gradient = bound(server).arrays
    for name, place in (("features.0.weight", (1, 0)), ("features.2.bias", (2,)), ("features.projection", (0, 1))):
        step = torch.zeros_like(server[f"theta/{name}"])
        step[place] = 1e-5
        moved = [{**server, f"theta/{name}": server[f"theta/{name}"] + sign * step} for sign in (1, -1)]
        slope = (bound(moved[0]).metrics["bound"] - bound(moved[1]).metrics["bound"]) / 2e-5
        np.testing.assert_allclose(float(gradient[name][place]), slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["pfed-mul", "pfed-st"])
def test_chunks_change_no_round(name):
    spec, data = federation(3)
    ends = [  # a bias at the end of a network would move by rounding alone: kernels do not see it
        run_rounds(METHODS[name](network="my_networks:normed", projection=2, chunk=chunk), spec, data, rounds=3)
        for chunk in (None, 4)
    ]
    for key, value in ends[0][0].items():
        torch.testing.assert_close(ends[1][0][key], value, rtol=1e-4, atol=1e-5)


def test_each_latent_has_a_network_that_starts_and_moves_by_itself():
    made = PFedMul(network="my_networks:small", network_per_latent=True, n_latents=2, scheme="N")
    spec, data = federation(2)
    start = made.init(spec, START)
    names = set(strip_prefix(start, "theta"))
    assert names == {f"features.{b}.{layer}.{kind}" for b in (0, 1) for layer in (0, 2) for kind in ("weight", "bias")}
    assert not torch.equal(start["theta/features.0.0.weight"], start["theta/features.1.0.weight"])
    end, states, _ = run_rounds(made, spec, data, rounds=2)
    for name in names:
        assert not torch.equal(end[f"theta/{name}"], start[f"theta/{name}"])
    x = data["client 0"].x
    assert np.isfinite(made.predictor(end, states["client 0"], data["client 0"])(x)["regression"].mean).all()


@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_networks_and_projections_decay_and_nothing_else(mode):
    """One step of each: with a decay it ends at what AdamW adds, − rate · decay · value."""
    spec, data = federation(1, whole=True)
    options = {"network": "my_networks:small", "projection": 2, "mode": mode, "learning_rate": {"features": 0.02}}
    made, decaying = PFedMul(**options), PFedMul(**options, weight_decay=0.5)
    start = made.init(spec, START)
    ends = [strip_prefix(run_rounds(one, spec, data, rounds=1)[0], "theta") for one in (made, decaying)]
    for name, before in strip_prefix(start, "theta").items():
        shrunk = 0.02 * 0.5 * before if name.startswith("features.") else torch.zeros_like(before)
        torch.testing.assert_close(ends[0][name] - ends[1][name], shrunk, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"network_per_latent": True}, "network_per_latent is set, and there is no network; set network, or leave"),
        ({"chunk": 8}, "chunk is set, and there is no network; set network, or leave chunk out"),
        ({"chunk": 0, "network": "my_networks:small"}, "chunk is 0; give a whole number from 1 up"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; give a number from 0 up"),
    ],
)
def test_options_that_make_no_sense(options, says):
    with pytest.raises(ConfigError, match=says):
        PFedMul(**options)


def test_a_layer_that_was_learned_elsewhere_is_where_learning_begins(monkeypatch):
    def known(n_features):
        trunk = small(n_features)
        nn.init.constant_(trunk[0].weight, 0.75)
        trunk[0].pretrained = True
        return trunk

    my_networks(monkeypatch, known=known)
    values = Network({"pulse": 1}, 3, factory="my_networks:known").initial(seed=1)
    assert torch.equal(values["trunk.0.weight"], torch.full((4, 3), 0.75, dtype=torch.float64))
    other = Network({"pulse": 1}, 3, factory="my_networks:known").initial(seed=2)
    assert not torch.equal(values["trunk.2.weight"], other["trunk.2.weight"])


def test_a_deep_kernel_learns_what_its_inputs_hide():
    """The target depends on one of twenty directions; a kernel on all of them sees less of it."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(20) / np.sqrt(20)
    spec, data = federation(8, kinds=("regression",), n_features=20, whole=True)
    clients, tests = {}, {}
    for name, mine in data.items():
        x = rng.standard_normal((60, 20))
        y = np.tanh(1.5 * x @ direction) + 0.1 * rng.standard_normal(60)
        clients[name] = type(mine)(x[:40], {"regression": (np.arange(40), y[:40])}, mine.codecs)
        tests[name] = (x[40:], y[40:])
    errors = {}
    for label, made in (("plain", PFedMul(n_latents=1)), ("deep", PFedMul(n_latents=1, projection=2))):
        server, states, _ = run_rounds(made, spec, clients, rounds=40)
        predicted = {n: made.predictor(server, states[n], clients[n])(tests[n][0])["regression"].mean for n in clients}
        errors[label] = np.mean([(predicted[n] - tests[n][1]) ** 2 for n in clients])
    assert errors["deep"] < 0.4 * errors["plain"]  # 0.015 and 0.086; the noise alone is 0.01
