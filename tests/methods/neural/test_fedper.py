"""FedPer against numbers by hand, FedAvg, and training alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyfed as pf
from federations import START, federation, my_networks, one_round, run_rounds
from method_toys import LINEAR, client_of, one_weight, spec_of, tilted, value
from polyfed.data import ClientData
from polyfed.methods import FedAvg, FedPer
from polyfed.methods.messages import strip_prefix
from polyfed.seeds import Stream


class Everything(FedPer):
    def personal(self, net):
        return [*net.heads, *net.last_layers(9)]


class Nothing(FedPer):
    def personal(self, net):
        return []


def test_fedper_with_an_empty_head_is_fedavg_to_the_bit():
    spec, data = federation(3)
    a, _, _ = run_rounds(FedAvg(learning_rate=0.02), spec, data, rounds=2)
    b, _, _ = run_rounds(Nothing(), spec, data, rounds=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())


def test_fedper_with_everything_personal_is_local_training():
    """What a client learns among others is what FedAvg, whose local training is torch's, finds for it alone."""
    spec, data = federation(2)
    server, states, updates = run_rounds(Everything(), spec, data, rounds=2)
    assert not strip_prefix(server, "theta")
    assert not updates["client 0"].arrays
    for name, mine in data.items():
        alone, _, _ = run_rounds(FedAvg(learning_rate=0.02), spec, {name: mine}, rounds=2)
        assert strip_prefix(alone, "theta").keys() == strip_prefix(states[name], "personal").keys()
        for n, v in strip_prefix(alone, "theta").items():
            torch.testing.assert_close(states[name][f"personal/{n}"], v, rtol=0, atol=1e-13)


def test_heads_stay_at_home_and_differ():
    spec, data = federation(2, whole=True)
    data["client 1"] = ClientData(
        data["client 0"].x,
        {t: (a, -y) if t == "binary" else (a, y) for t, (a, y) in data["client 0"].labels.items()},
        data["client 0"].codecs,
    )
    made = FedPer()
    server, states, updates = run_rounds(made, spec, data, rounds=3)
    assert not any("head" in name for name in [*strip_prefix(server, "theta"), *updates["client 0"].arrays])
    heads = [states[n]["personal/head.1.weight"] for n in data]
    assert not torch.allclose(*heads)


def test_as_many_numbers_are_sent_as_the_trunk_has():
    """2 features, layers of 5 and 4: 2·5 + 5 + 5·4 + 4 = 39 numbers; without the last one, which is personal too, 15."""
    spec, data = federation(2)
    for n_layers, wanted in ((1, 39), (2, 15), (3, 0)):
        made = FedPer(hidden=(5, 4), n_personal_layers=n_layers)
        server, states, updates = run_rounds(made, spec, data, rounds=1)
        assert sum(v.numel() for v in updates["client 0"].arrays.values()) == wanted
        assert sum(v.numel() for v in made.broadcast(server, "client 0").values()) == wanted
        assert not strip_prefix(server, "theta").keys() & strip_prefix(states["client 0"], "personal").keys()


def test_the_same_data_under_heads_of_ones_own():
    """Twins with heads that began apart keep them apart; those that began alike stay alike."""
    spec, data = federation(1)
    twins = {"client 0": data["client 0"], "client 1": data["client 0"]}
    for init in ("own", "shared"):
        _, states, _ = run_rounds(FedPer(head_init=init, batch_size=1000), spec, twins, rounds=3)
        first, second = (strip_prefix(states[name], "personal") for name in twins)
        assert all(torch.allclose(v, second[n], rtol=0, atol=1e-12) for n, v in first.items()) is (init == "shared")


@pytest.mark.parametrize("init", ["shared", "own"])
def test_where_heads_begin(init):
    spec, data = federation(2)
    made = FedPer(head_init=init, local_epochs=1, learning_rate=1e-12)
    _, states, _ = run_rounds(made, spec, data, rounds=1)
    first, second = (states[n]["personal/head.0.weight"] for n in data)
    assert torch.allclose(first, second, atol=1e-6) is (init == "shared")


def test_two_rounds_by_hand(monkeypatch):
    """f = w t x + b from t = 1, w = 1, b = 0 with x = 1; ann has two labels 3, bob six labels 0; one step of 0.1.

    ann: f − y = −2, all slopes −2: t = 1.2, w = 1.2, b = 0.2.   bob: f − y = 1: t = 0.9, w = 0.9, b = −0.1.
    Server: t = 1 + (2·0.2 − 6·0.1)/8 = 0.975. They predict 1.2·0.975 + 0.2 = 1.37 and 0.9·0.975 − 0.1 = 0.7775, the server
    alone, with the head that all began with, 0.975.
    Round 2, ann: f − y = −1.63, slopes in t, w, b −1.63·1.2, −1.63·0.975, −1.63: t = 1.1706, w = 1.358925, b = 0.363.
    Bob, who sat it out, has the new trunk under his head: 0.9·1.1706 − 0.1 = 0.95354.
    """
    my_networks(monkeypatch, one_weight=one_weight)
    data = {"ann": client_of([1] * 2, [3] * 2), "bob": client_of([1] * 6, [0] * 6)}
    made = FedPer(network="my_networks:one_weight", **{n: v for n, v in LINEAR.items() if n != "hidden"})
    server, states = made.init(spec_of(data), START), {name: made.start(mine, START) for name, mine in data.items()}
    server, states = tilted(server), {name: tilted(state) for name, state in states.items()}
    server, _ = one_round(made, server, states, data)
    assert value(server, "theta/trunk.0.weight") == pytest.approx(0.975, abs=1e-15)
    x = np.ones((1, 1))
    for state, mean in ((states["ann"], 1.37), (states["bob"], 0.7775), (None, 0.975)):
        assert made.predictor(server, state, data["ann"])(x)["y"].mean[0] == pytest.approx(mean, abs=1e-14)
    server, _ = one_round(made, server, states, data, who=["ann"], round=2)
    assert value(server, "theta/trunk.0.weight") == pytest.approx(1.1706, abs=1e-14)
    assert value(states["ann"], "personal/head.0.weight") == pytest.approx(1.358925, abs=1e-14)
    assert value(states["ann"], "personal/head.0.bias") == pytest.approx(0.363, abs=1e-14)
    assert made.predictor(server, states["bob"], data["bob"])(x)["y"].mean[0] == pytest.approx(0.95354, abs=1e-14)


def test_a_newcomer_trains_its_head_alone(monkeypatch):
    """Steps from its own start (w, b) on a label 3 under t = 2, which stays: f = 2w + b, w − 0.1·2 (f − 3), b − 0.1 (f − 3)."""
    my_networks(monkeypatch, one_weight=one_weight)
    data = {"ann": client_of([1, 1], [3, 3])}
    options = {n: v for n, v in LINEAR.items() if n != "hidden"}
    made = FedPer(network="my_networks:one_weight", head_epochs=2, **options)
    server = made.init(spec_of(data), START) | {"theta/trunk.0.weight": torch.full((1, 1), 2.0, dtype=torch.float64)}
    start = made.start(data["ann"], Stream(0, "join"))
    w, b = (value(start, f"personal/head.0.{name}") for name in ("weight", "bias"))
    state = made.join(server, data["ann"], Stream(0, "join"))
    assert state.keys() == {"personal/head.0.weight", "personal/head.0.bias"}
    for _ in range(2):
        away = 2 * w + b - 3
        w, b = w - 0.2 * away, b - 0.1 * away
    assert value(state, "personal/head.0.weight") == pytest.approx(w, abs=1e-14)
    assert value(state, "personal/head.0.bias") == pytest.approx(b, abs=1e-14)


def test_a_client_whose_rows_share_a_rare_value_does_not_diverge():
    """Of a rare level, standardised, every row of one client has eleven standard deviations: its head sees large features."""
    rng = np.random.default_rng(0)
    clients = {}
    for name, rare in (("a", 0.1), ("b", 0.1), ("c", -11.0)):
        x = np.column_stack([rng.standard_normal((50, 7)), np.full(50, 5.0 if rare < 0 else 0.0), np.full(50, rare)])
        clients[name] = (x, {"y": x[:, 0] + 0.3 * rng.standard_normal(50)})
    federation = pf.Federation.from_clients(
        clients, {"y": "regression"}, scaling="targets", split=pf.Split(test=0.0, validation=0.2)
    )
    run = pf.simulate("fedper", federation, rounds=30, seed=0)
    assert run.summary(["rmse"], part="validation").to_numpy().max() < 2.0  # at .05 it is 857
