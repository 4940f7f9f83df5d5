"""Ditto against numbers by hand, and its two ends: training alone, and FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import federation, one_round, run_rounds
from method_toys import LINEAR, begin, toy, value
from polyfed.methods import Ditto, FedAvg
from polyfed.methods.messages import strip_prefix
from polyfed.seeds import Stream


def test_two_rounds_by_hand():
    """f = w + b from zero, labels 3 and 0, steps of 0.1, λ = 2.

    Round 1: ann's slopes are −3: v = w = 0.3; bob's are 0. The server has (0.3 + 0)/2 = 0.15.
    Round 2, ann: f(v) − 3 = −2.4, pull 2 (0.3 − 0.15) = 0.3: v = 0.3 + 0.1 · 2.1 = 0.51.
             bob: f(v) − 0 = 0, pull 2 (0 − 0.15) = −0.3: v = 0.03.
    Round 3 asks bob alone: ann's v stays, though the server moves.
    """
    made = Ditto(penalty=2.0, personal_rate=0.1, personal_epochs=1, **LINEAR)
    spec, data = toy(3.0, 0.0)
    ann, bob = data
    server, states = begin(made, spec, data)
    server, _ = one_round(made, server, states, data)
    assert value(server) == pytest.approx(0.15, abs=1e-15)
    server, _ = one_round(made, server, states, data, round=2)
    assert value(states[ann], "own/head.0.weight") == pytest.approx(0.51, abs=1e-15)
    assert value(states[bob], "own/head.0.weight") == pytest.approx(0.03, abs=1e-15)
    before = dict(states[ann])
    after, _ = one_round(made, server, states, data, who=[bob], round=3)
    assert value(after) != value(server)
    assert all(torch.equal(v, before[n]) for n, v in states[ann].items())
    read = made.predictor(after, states[ann], data[ann])(np.ones((1, 1)))["y"]
    assert read.mean[0] == pytest.approx(1.02, abs=1e-14)


def test_the_shared_network_is_that_of_fedavg_to_the_bit():
    spec, data = federation(3)
    shared, _, _ = run_rounds(FedAvg(), spec, data, rounds=2)
    server, _, _ = run_rounds(Ditto(), spec, data, rounds=2)
    assert server.keys() == shared.keys()
    assert all(torch.equal(v, server[n]) for n, v in shared.items())


def test_without_a_penalty_each_client_trains_alone():
    """With the steps of FedAvg, whose rounds with a single client are plain training."""
    spec, data = federation(2)
    _, states, _ = run_rounds(Ditto(penalty=0.0, personal_rate=0.05, personal_epochs=2), spec, data, rounds=3)
    for name, mine in data.items():
        alone, _, _ = run_rounds(FedAvg(learning_rate=0.05, local_epochs=2), spec, {name: mine}, rounds=3)
        for n, v in strip_prefix(alone, "theta").items():
            torch.testing.assert_close(states[name][f"own/{n}"], v, rtol=0, atol=1e-13)


def test_with_a_large_penalty_every_client_has_the_shared_network():
    """At λ η = 1 a step ends at w − ∇F/λ, wherever it began."""
    spec, data = federation(2)
    made = Ditto(penalty=1e6, personal_rate=1e-6)
    sent, _, _ = run_rounds(made, spec, data, rounds=2)
    _, states, _ = run_rounds(made, spec, data, rounds=3)
    for state in states.values():
        for n, v in strip_prefix(sent, "theta").items():
            torch.testing.assert_close(state[f"own/{n}"], v, rtol=0, atol=1e-4)


def test_heads_that_a_client_has_no_labels_for_follow_the_shared_ones():
    """client 1 lacks the task at position 1: its own head of it is pulled to w by λ η of the way in every step."""
    spec, data = federation(2)
    made = Ditto(penalty=1.0, personal_rate=0.5, personal_epochs=1, batch_size=1000)
    assert "binary" not in data["client 1"].labels
    server, states, _ = run_rounds(made, spec, data, rounds=1)
    before = states["client 1"]["own/head.1.weight"]
    one_round(made, server, states, data, round=2)
    moved = states["client 1"]["own/head.1.weight"]
    assert not torch.allclose(before, server["theta/head.1.weight"])
    torch.testing.assert_close(moved, before + 0.5 * (server["theta/head.1.weight"] - before), rtol=0, atol=1e-14)


def test_a_late_joining_client_steps_from_the_shared_network():
    """From w = b = 1 with a label 5, η = 0.1, λ = 2: v = 1 + 0.3; then f − 5 = −2.4 and pull 0.6: 1.3 + 0.18 = 1.48."""
    spec, data = toy(5.0)
    made = Ditto(penalty=2.0, personal_rate=0.1, join_epochs=2, **LINEAR)
    server, _ = begin(made, spec, data, w=1.0, b=1.0)
    state = made.join(server, data["client 0"], Stream(0, "join"))
    assert value(state, "own/head.0.weight") == pytest.approx(1.48, abs=1e-14)
    never = made.predictor(server, {}, data["client 0"])(np.ones((1, 1)))["y"]  # in no round, and did not join
    assert never.mean[0] == pytest.approx(2.96, abs=1e-14)
