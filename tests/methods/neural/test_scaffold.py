"""SCAFFOLD against numbers by hand, the optimum of a quadratic, and FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from federations import START, federation, my_networks, normed, one_round, run_rounds
from method_toys import LINEAR, begin, client_of, spec_of, toy, value
from polyfed.data import FederationSpec
from polyfed.methods import FedAvg, Scaffold
from polyfed.methods.messages import strip_prefix, with_prefix
from polyfed.seeds import Stream


def test_scaffold_by_hand():
    """Two clients (targets 1 and 3), bias frozen by symmetry: weight and bias move alike, f = 2w, so g = 2w − t.

    Two local steps of 0.1, option II, two rounds; in round 1 both take part, in round 2 only client 1 (target 3).
    Round 1, c = c_i = 0, w = 0:
      client 0: g = −1 → w = 0.1; g = 0.2 − 1 = −0.8 → w = 0.18.   c_0 = (0 − 0.18)/(2·0.1) = −0.9
      client 1: g = −3 → w = 0.3; g = 0.6 − 3 = −2.4 → w = 0.54.   c_1 = −2.7
      server: w = (0.18 + 0.54)/2 = 0.36;  c = (−0.9 − 2.7)/2 = −1.8
    Round 2, client 1: step g − c_1 + c = g + 0.9:
      g = 0.72 − 3 = −2.28 → −1.38 → w = 0.498;  g = 0.996 − 3 = −2.004 → −1.104 → w = 0.6084
      c_1 = −2.7 + 1.8 + (0.36 − 0.6084)/0.2 = −0.9 − 1.242 = −2.142
      server: w = 0.6084;  c = −1.8 + (−2.142 + 2.7)/2 = −1.521 = (−0.9 − 2.142)/2
    """
    spec, data = toy(1, 3)
    made = Scaffold(**LINEAR | {"local_epochs": 2})
    server, states = begin(made, spec, data)
    server, _ = one_round(made, server, states, data)
    assert value(server) == pytest.approx(0.36, abs=1e-14)
    assert value(states["client 0"], "control/head.0.weight") == pytest.approx(-0.9, abs=1e-14)
    assert value(states["client 1"], "control/head.0.weight") == pytest.approx(-2.7, abs=1e-14)
    assert value(server, "control/head.0.weight") == pytest.approx(-1.8, abs=1e-14)
    server, _ = one_round(made, server, states, data, who=["client 1"], round=2)
    assert value(server) == pytest.approx(0.6084, abs=1e-14)
    assert value(states["client 1"], "control/head.0.weight") == pytest.approx(-2.142, abs=1e-14)
    assert value(server, "control/head.0.weight") == pytest.approx(-1.521, abs=1e-14)


def test_the_servers_control_is_the_mean_of_the_clients_also_under_partial_participation():
    spec, data = federation(4)
    made = Scaffold(hidden=(6,))
    server = made.init(spec, START)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    for r, who in enumerate([["client 0", "client 2"], ["client 1"], ["client 0", "client 3"], ["client 2"]]):
        server, _ = one_round(made, server, states, data, who=who, round=r)
        for name, c in strip_prefix(server, "control").items():
            mean = torch.stack([states[n][f"control/{name}"] for n in data]).mean(0)
            torch.testing.assert_close(c, mean, rtol=0, atol=1e-12)


def uneven():
    """Clients whose losses curve differently: FedAvg with several steps ends between the optima, but not at the best."""
    rows = {"client 0": (1.0, 1.0), "client 1": (2.0, 3.0), "client 2": (-0.5, 2.0)}
    data = {name: client_of([x] * 4, [y] * 4) for name, (x, y) in rows.items()}
    return spec_of(data), data


def test_scaffold_ends_at_the_optimum_where_fedavg_does_not():
    spec, data = uneven()
    # minimise Σ (y − w x − b)² over x = 1, 2, −½ and y = 1, 3, 2
    X = np.array([[1.0, 1.0], [2.0, 1.0], [-0.5, 1.0]])
    best = np.linalg.lstsq(X, np.array([1.0, 3.0, 2.0]), rcond=None)[0]
    distance = {}
    for made in (Scaffold(**LINEAR | {"local_epochs": 5}), FedAvg(**LINEAR | {"local_epochs": 5})):
        server, _, _ = run_rounds(made, spec, data, rounds=800)
        found = [value(server), value(server, "theta/head.0.bias")]
        distance[made.name] = np.abs(found - best).max()
    assert distance["scaffold"] < 1e-9
    assert distance["fedavg"] > 1e-3


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("n_steps", [1, 3, 10])
def test_the_optimum_with_its_gradients_is_a_fixed_point(n_steps, option):
    spec, data = uneven()
    made = Scaffold(**LINEAR | {"local_epochs": n_steps}, option=option)
    X = np.array([[1.0, 1.0], [2.0, 1.0], [-0.5, 1.0]])
    y = np.array([1.0, 3.0, 2.0])
    w, b = np.linalg.lstsq(X, y, rcond=None)[0]
    server, states = begin(made, spec, data, w=w, b=b)
    for i, name in enumerate(data):
        residual = X[i] @ [w, b] - y[i]
        own = {"head.0.weight": torch.tensor([[residual * X[i, 0]]]), "head.0.bias": torch.tensor([residual])}
        states[name] |= with_prefix("control", own)
    after, _ = one_round(made, server, states, data)
    assert value(after) == pytest.approx(w, abs=1e-12)
    assert value(after, "control/head.0.weight") == pytest.approx(0.0, abs=1e-12)
    residual = X[1] @ [w, b] - y[1]
    assert abs(residual) > 0.1
    assert value(states["client 1"], "control/head.0.bias") == pytest.approx(residual, abs=1e-12)


def test_one_step_without_controls_is_a_gradient_step_and_both_options_agree():
    spec, data = federation(3)
    options = {"batch_size": 1000, "local_epochs": 1, "hidden": (4,)}
    results = {}
    for label, made in (
        ("I", Scaffold(**options, option="I")),
        ("II", Scaffold(**options, option="II")),
        ("avg", FedAvg(**options, weighting="uniform")),
    ):
        server = made.init(spec, START)
        states = {name: made.start(mine, START) for name, mine in data.items()}
        results[label] = one_round(made, server, states, data)[0], states
    for name in strip_prefix(results["I"][0], "theta"):
        a, b, c = (results[label][0][f"theta/{name}"] for label in ("I", "II", "avg"))
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        torch.testing.assert_close(a, c, rtol=0, atol=1e-12)
    for name, v in strip_prefix(results["I"][1]["client 0"], "control").items():
        torch.testing.assert_close(v, results["II"][1]["client 0"][f"control/{name}"], rtol=0, atol=1e-10)


def test_identical_clients_go_the_way_of_fedavg():
    spec, data = federation(1)
    twins = {"client 0": data["client 0"], "client 1": data["client 0"]}
    spec = FederationSpec(spec.tasks, spec.n_features, tuple(twins), spec.codecs)
    a, _, _ = run_rounds(Scaffold(batch_size=1000), spec, twins, rounds=3)
    b, _, _ = run_rounds(FedAvg(batch_size=1000), spec, twins, rounds=3)
    for name in strip_prefix(a, "theta"):
        torch.testing.assert_close(a[f"theta/{name}"], b[f"theta/{name}"], rtol=0, atol=1e-12)


def test_without_controls_it_is_fedavg():
    """All controls set back to zero before each round: FedAvg with uniform weights, minibatches and partial rounds too."""
    spec, data = federation(3)
    options = {"hidden": (4,), "batch_size": 3, "local_epochs": 2}
    made, plain = Scaffold(**options), FedAvg(**options, weighting="uniform")
    servers = [m.init(spec, START) for m in (made, plain)]
    states = [{name: m.start(mine, START) for name, mine in data.items()} for m in (made, plain)]
    for r, who in enumerate([list(data), ["client 0", "client 2"], ["client 1"]]):
        zero = {name: torch.zeros_like(v) for name, v in servers[0].items() if name.startswith("control/")}
        servers[0], states[0] = servers[0] | zero, {name: state | zero for name, state in states[0].items()}
        servers = [
            one_round(m, server, own, data, who=who, round=r)[0]
            for m, server, own in zip((made, plain), servers, states, strict=True)
        ]
        assert any(v.abs().max() > 1e-3 for v in strip_prefix(servers[0], "control").values())
        for name, v in strip_prefix(servers[1], "theta").items():
            torch.testing.assert_close(servers[0][f"theta/{name}"], v, rtol=0, atol=1e-13)


def test_steps_are_counted_as_they_were_taken():
    """Five rows in batches of two for two epochs are six steps; c_i is then the mean of the six gradients on the way."""
    x, y = np.array([1.0, -2.0, 0.5, 3.0, 1.5]), np.array([1.0, 0.0, 2.0, -1.0, 4.0])
    data = {"client 0": client_of(x, y)}
    made = Scaffold(**LINEAR | {"batch_size": 2, "local_epochs": 2})
    server, states = begin(made, spec_of(data), data, w=0.4, b=-0.3)
    c, own = np.array([0.3, -0.2]), np.array([0.1, 0.5])

    def control(numbers):
        w, b = numbers
        return {"control/head.0.weight": torch.tensor([[w]]), "control/head.0.bias": torch.tensor([b])}

    states["client 0"] |= control(own)
    point, gradients, stream = np.array([0.4, -0.3]), [], Stream(0, "local", 1, "client 0")
    for epoch in range(2):
        for batch in made.batches(made.net_of(data["client 0"]), data["client 0"], stream, epoch):
            rows = np.column_stack([x, np.ones(5)])[batch["y"]]
            gradients.append(rows.T @ (rows @ point - y[batch["y"]]) / len(rows))
            point = point - 0.1 * (gradients[-1] - own + c)
    assert len(gradients) == 6
    _, updates = one_round(made, server | control(c), states, data)
    found = [value(states["client 0"], f"control/head.0.{name}") for name in ("weight", "bias")]
    np.testing.assert_allclose(found, np.mean(gradients, 0), atol=1e-12)
    sent = [value(updates["client 0"].arrays, f"head.0.{name}") for name in ("weight", "bias")]
    np.testing.assert_allclose(sent, point - [0.4, -0.3], atol=1e-13)


def test_twice_as_much_is_sent_and_running_statistics_have_no_control(monkeypatch):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(2)
    for made in (Scaffold(hidden=(5,)), Scaffold(network="my_networks:normed")):
        server, states, updates = run_rounds(made, spec, data, rounds=1)
        net = made.net_of(spec)
        trained = {
            name for name in strip_prefix(server, "theta") if "running" not in name and "num_batches" not in name
        }
        assert trained == set(strip_prefix(server, "theta")) - set(net.buffers)
        for held in (server, states["client 0"], updates["client 0"].arrays, made.broadcast(server, "client 0")):
            assert strip_prefix(held, "control").keys() == trained
    sizes = [sum(v.numel() for n, v in update.arrays.items() if n not in net.buffers) for update in updates.values()]
    assert sizes == [2 * sum(server[f"theta/{n}"].numel() for n in trained)] * 2


def test_option_one_goes_with_momentum():
    """Two steps of 0.1 with momentum ½ from 0 on the target 1: −1, then 0.2 − 1 − ½ = −1.3: w = 0.23, c_i = g(0) = −1."""
    spec, data = toy(1)
    made = Scaffold(**LINEAR | {"local_epochs": 2, "momentum": 0.5}, option="I")
    server, states = begin(made, spec, data)
    server, _ = one_round(made, server, states, data)
    assert value(server) == pytest.approx(0.23, abs=1e-15)
    assert value(states["client 0"], "control/head.0.weight") == pytest.approx(-1.0, abs=1e-15)
