"""FedBABU and FedAvg with a tuned head, against numbers by hand: f = w t x + b, with the trunk t and the head (w, b)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import START, federation, my_networks, one_round, run_rounds
from method_toys import LINEAR, client_of, one_weight, spec_of, tilted, value
from polyfed.data import ClientData
from polyfed.errors import ConfigError
from polyfed.methods import FedAvg, FedAvgFT, FedBABU, method
from polyfed.methods.messages import strip_prefix
from polyfed.seeds import Stream

ONE = {n: v for n, v in LINEAR.items() if n != "hidden"} | {"network": "my_networks:one_weight"}
X = np.ones((1, 1))


@pytest.fixture
def pair(monkeypatch):
    """ann has two labels 3, bob six labels 0, all at x = 1."""
    my_networks(monkeypatch, one_weight=one_weight)
    return {"ann": client_of([1] * 2, [3] * 2), "bob": client_of([1] * 6, [0] * 6)}


def after_one_round(made, data):
    """From t = w = 1, b = 0. ann: f − y = −2, t = 1.2; bob: f − y = 1, t = 0.9. Server: 1 + (2·0.2 − 6·0.1)/8 = 0.975."""
    server = tilted(made.init(spec_of(data), START))
    states = {name: tilted(made.start(mine, START)) for name, mine in data.items()}
    server, updates = one_round(made, server, states, data)
    assert value(server, "theta/trunk.0.weight") == pytest.approx(0.975, abs=1e-15)
    return server, states, updates


def test_a_round_moves_the_body_alone(pair):
    server, states, updates = after_one_round(FedBABU(**ONE), pair)
    assert updates["ann"].arrays.keys() == {"trunk.0.weight"}
    assert value(updates["ann"].arrays, "trunk.0.weight") == pytest.approx(0.2, abs=1e-15)
    for state in states.values():
        assert (value(state, "personal/head.0.weight"), value(state, "personal/head.0.bias")) == (1.0, 0.0)
    assert not any("head" in name for name in strip_prefix(server, "theta"))


@pytest.mark.parametrize(
    ("part_of", "t"),
    [("all", 0.975 + 0.2025), ("head", 0.975)],
)
def test_a_client_is_tuned_before_it_predicts(pair, part_of, t):
    """f − 3 = −2.025 at t = 0.975: w = 1 + 0.2025 · 0.975, b = 0.2025, and t = 0.975 + 0.2025 where it is tuned too."""
    made = FedBABU(finetune_epochs=1, finetune_part=part_of, **ONE)
    server, states, _ = after_one_round(made, pair)
    read = made.predictor(server, states["ann"], pair["ann"])(X)["y"].mean[0]
    assert read == pytest.approx((1 + 0.2025 * 0.975) * t + 0.2025, abs=1e-14)
    untuned = FedBABU(finetune_epochs=0, **ONE).predictor(server, states["ann"], pair["ann"])
    nobody = ClientData(X, {}, pair["ann"].codecs)
    for predict in (untuned, made.predictor(server, None, pair["ann"]), made.predictor(server, states["ann"], nobody)):
        assert predict(X)["y"].mean[0] == pytest.approx(0.975, abs=1e-14)


def test_heads_are_those_that_were_drawn_to_the_bit():
    spec, data = federation(3)
    made = FedBABU()
    first = made.init(spec, START)
    server, states, updates = run_rounds(made, spec, data, rounds=3)
    drawn = made.net_of(data["client 0"]).initial(START.integer())
    heads = made.net_of(data["client 0"]).heads
    for name in heads:
        assert torch.equal(server[f"initial/{name}"], drawn[name])
        assert all(torch.equal(state[f"personal/{name}"], drawn[name]) for state in states.values())
        assert all(name not in update.arrays for update in updates.values())
    made.predictor(server, states["client 0"], data["client 0"])(data["client 0"].x)
    assert all(torch.equal(states["client 0"][f"personal/{name}"], drawn[name]) for name in heads)
    assert not torch.equal(server["theta/trunk.0.weight"], first["theta/trunk.0.weight"])


def test_a_late_joining_client_has_the_head_of_all_others():
    """Its stream is another than that of the start: a draw of its own would be a head that no trunk was trained below."""
    spec, data = federation(2)
    made = FedBABU()
    server, states, _ = run_rounds(made, spec, data, rounds=1)
    state = made.join(server, data["client 0"], Stream(3, "join", client="late"))
    assert state.keys() == states["client 0"].keys()
    assert all(torch.equal(v, states["client 0"][n]) for n, v in state.items())


def test_nothing_to_train_is_rejected():
    spec, _ = federation(1)
    with pytest.raises(ConfigError) as error:
        FedBABU(hidden=()).init(spec, START)
    assert str(error.value) == (
        "hidden is [] with network None: nothing to train below the heads; "
        "give FedBABU a layer to train, such as hidden=[64]."
    )


# ---- FedAvg with a tuned head -----------------------------------------------------------------------------------------


def test_fedavg_ft_tunes_the_head_on_the_averaged_network(pair):
    """Round by hand as FedPer's first, with averaged heads: w = t = 0.975 and b = −0.025.

    ann's f = 0.975² − 0.025 = 0.925625, away by −2.074375: w + 0.2074375 · 0.975, b + 0.2074375; t stays.
    """
    made = FedAvgFT(finetune_epochs=1, **ONE)
    server, states, _ = after_one_round(made, pair)
    assert value(server, "theta/head.0.weight") == pytest.approx(0.975, abs=1e-15)
    assert value(server, "theta/head.0.bias") == pytest.approx(-0.025, abs=1e-15)
    read = made.predictor(server, states["ann"], pair["ann"])(X)["y"].mean[0]
    w, b = 0.975 + 0.2074375 * 0.975, -0.025 + 0.2074375
    assert read == pytest.approx(w * 0.975 + b, abs=1e-14)
    assert made.predictor(server, None, pair["ann"])(X)["y"].mean[0] == pytest.approx(0.925625, abs=1e-14)


def test_fedavg_ft_learns_as_fedavg_and_differs_by_name_and_defaults_alone():
    spec, data = federation(3)
    shared, _, _ = run_rounds(FedAvg(), spec, data, rounds=2)
    server, _, _ = run_rounds(method("fedavg-ft"), spec, data, rounds=2)
    assert all(torch.equal(v, server[n]) for n, v in shared.items())
    assert (FedAvgFT().finetune_epochs, FedAvgFT().finetune_part) == (5, "head")
    assert FedAvgFT().personalises
    assert not FedAvg().personalises
