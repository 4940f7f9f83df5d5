"""What holds for all methods with networks: running statistics, tiny batches, weights, frozen layers, no labels at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from federations import START, federation, my_networks, normed, one_round, run_rounds
from method_toys import client_of, spec_of
from polyfed.data import ClientData
from polyfed.methods import METHODS, FedAvg, method
from polyfed.methods.checks import functions_change_nothing_in_place
from polyfed.methods.messages import strip_prefix
from polyfed.methods.neural.shared_network import SharedNetwork
from polyfed.seeds import Stream

NETWORKS = [name for name, made in METHODS.items() if issubclass(made, SharedNetwork)]
QUICK = {"pfedme": {"local_steps": 3}, "pfedvem": {"head_steps": 2, "local_epochs": 1}}


def quick(name, **options):
    return method(name, **QUICK.get(name, {}) | options)


# ---- running statistics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NETWORKS), ("scaffold", {"option": "I"})])
def test_training_and_predicting_move_no_statistics_of_others(name, options, buffers, monkeypatch):
    """A forward pass moves running statistics in place: those of the server or of a message must not be among them."""
    my_networks(monkeypatch, normed=normed)
    functions_change_nothing_in_place(quick(name, network="my_networks:normed", bn_buffers=buffers, **options))


@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
@pytest.mark.parametrize("name", NETWORKS)
def test_where_running_statistics_go(name, buffers, monkeypatch):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(2, kinds=("regression",))
    made = quick(name, network="my_networks:normed", bn_buffers=buffers, batch_size=4)
    first = made.init(spec, START)
    server, states, updates = run_rounds(made, spec, data, rounds=1)
    names = [f"trunk.1.{n}" for n in ("running_mean", "running_var", "num_batches_tracked")]
    assert [n for n in names if n in updates["client 0"].arrays] == ([] if buffers == "local" else names)
    own = [strip_prefix(state, "personal") for state in states.values()]
    if buffers == "average":
        assert not any(n in mine for mine in own for n in names)
        n_labels = torch.tensor([mine.n_labels for mine in data.values()], dtype=torch.float64)
        weights = (
            n_labels / n_labels.sum() if made.weighting == "samples" else torch.full((2,), 0.5, dtype=torch.float64)
        )
        change = torch.stack([update.arrays[names[0]] for update in updates.values()])
        assert change.any()
        moved = first[f"theta/{names[0]}"] + (weights[:, None] * change).sum(0)
        torch.testing.assert_close(server[f"theta/{names[0]}"], moved, rtol=0, atol=1e-14)
    elif buffers == "local":
        assert not torch.equal(own[0][names[0]], own[1][names[0]])
        assert not any(n in strip_prefix(server, "theta") for n in names)
    else:
        assert all(torch.equal(server[f"theta/{n}"], first[f"theta/{n}"]) for n in names)


def test_a_counter_of_batches_is_the_largest_and_not_a_mean(monkeypatch):
    """From 5: clients with 4 and 6 rows in batches of 2 see 2 and 3 batches in an epoch. 5 + 3 = 8, a whole number."""
    my_networks(monkeypatch, normed=normed)
    data = {"ann": client_of(np.arange(4), np.arange(4)), "bob": client_of(np.arange(6), np.arange(6))}
    made = FedAvg(network="my_networks:normed", batch_size=2, local_epochs=1)
    server = made.init(spec_of(data), START) | {"theta/trunk.1.num_batches_tracked": torch.tensor(5)}
    after, _ = one_round(made, server, {name: made.start(mine, START) for name, mine in data.items()}, data)
    assert after["theta/trunk.1.num_batches_tracked"].tolist() == 8
    assert after["theta/trunk.1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize("buffers", ["average", "local", "frozen"])
@pytest.mark.parametrize("name", NETWORKS)
def test_batch_norm_with_a_client_of_one_sample(name, buffers, monkeypatch):
    """One row has no statistics: it is trained with those it was sent, which stay as they are."""
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(3, kinds=("regression",))
    one = data["client 1"]
    x = -one.x[:1]  # where not all units of the network are dead
    data["client 1"] = ClientData(x, {"regression": (np.array([0]), one.labels["regression"][1][:1])}, one.codecs)
    made = quick(name, network="my_networks:normed", bn_buffers=buffers, batch_size=3)
    server, states, updates = run_rounds(made, spec, data, rounds=2)
    assert all(torch.isfinite(v).all() for v in [*server.values(), *states["client 1"].values()])
    assert np.isfinite(made.predictor(server, states["client 1"], data["client 1"])(one.x)["regression"].mean).all()
    sent = {n: v for n, v in updates["client 1"].arrays.items() if "running" in n or "num_batches" in n}
    assert len(sent) == (0 if buffers == "local" else 3)
    assert not any(v.any() for v in sent.values())
    if name not in (
        "pfedgp",
        "fedpac",
    ):  # one label teaches a process or a class mean of its own little; it steps, though
        assert updates["client 1"].arrays["trunk.0.weight"].any()


# ---- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 9, 10, 11, 20, 21])
@pytest.mark.parametrize("network", [None, "my_networks:normed"])
def test_every_label_has_its_turn_once_in_an_epoch(n, network, monkeypatch):
    """Nothing is dropped; a last batch of one joins the one before it where batch norm could make nothing of it."""
    my_networks(monkeypatch, normed=normed)
    data = client_of(np.arange(n), np.arange(n))
    made = FedAvg(network=network, batch_size=10)
    batches = [list(b["y"]) for b in made.batches(made.net_of(data), data, Stream(0, "local", 1, "ann"), 0)]
    assert sorted(row for batch in batches for row in batch) == list(range(n))
    plain = [10] * (n // 10) + [n % 10] * (n % 10 > 0)
    wanted = [*plain[:-2], 11] if network and n in (11, 21) else plain
    assert [len(batch) for batch in batches] == wanted


# ---- weights ---------------------------------------------------------------------------------------------------------


def update_of(made, server, change, count):
    """An update that moves every parameter by this change, from a client with so many labels of every task."""
    empty = made.template(server)
    theta = strip_prefix(server, "theta")
    arrays = {n: torch.full_like(v, change) if n in theta else torch.ones_like(v) for n, v in empty.arrays.items()}
    one = torch.ones((), dtype=torch.float64)
    pooled = dict.fromkeys(empty.pooled, (one, one))
    return replace(empty, arrays=arrays, pooled=pooled, weight=3.0 * count, counts=dict.fromkeys(empty.counts, count))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("task_mode", ["shared", "separate"])
@settings(max_examples=10)
@given(counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=5), change=st.floats(-3, 3), rate=st.floats(0.1, 1))
def test_weights_sum_to_one(name, task_mode, counts, change, rate):
    """Where all clients say the same, that is the average, however many labels they have."""
    spec, _ = federation(1)
    made = quick(name, hidden=(3,), task_mode=task_mode, server_rate=rate)
    server = made.init(spec, START)
    after = made.aggregate(server, {f"c{i}": update_of(made, server, change, n) for i, n in enumerate(counts)})
    for n, v in strip_prefix(server, "theta").items():
        torch.testing.assert_close(after[f"theta/{n}"], v + rate * change, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "share"),
    [(name, 0.5 if name in ("scaffold", "pfedme", "pfedgp") else 0.75) for name in NETWORKS],
)
def test_trunks_are_weighted_as_in_the_publication(name, share):
    """Clients with 10 and 30 labels, of which the second moves by 1."""
    spec, _ = federation(1)
    made = quick(name, hidden=(3,))
    server = made.init(spec, START)
    after = made.aggregate(server, {"a": update_of(made, server, 0.0, 10), "b": update_of(made, server, 1.0, 30)})
    moved = after["theta/trunk.0.weight"] - server["theta/trunk.0.weight"]
    np.testing.assert_allclose(moved, share, atol=1e-14)


def test_what_nobody_changed_stays_to_the_bit():
    """Thirds do not add up to one in doubles: averaged as values, instead of as changes, these would move."""
    spec, _ = federation(1)
    made = FedAvg(hidden=(50,))
    server = made.init(spec, START)
    updates = {f"c{i}": update_of(made, server, 0.0, n) for i, n in enumerate((3, 7, 11))}
    after = made.aggregate(server, updates)
    assert all(torch.equal(after[f"theta/{n}"], v) for n, v in strip_prefix(server, "theta").items())
    shares = np.array([3, 7, 11]) / 21
    naive = {n: sum(share * v for share in shares) for n, v in strip_prefix(server, "theta").items()}
    assert any(not torch.equal(naive[n], v) for n, v in strip_prefix(server, "theta").items())


# ---- frozen layers -----------------------------------------------------------------------------------------------------


def pretrained(n_features):
    """A first layer that was learned elsewhere, and one to train."""
    first = nn.Linear(n_features, 4)
    with torch.no_grad():
        first.weight.copy_(torch.linspace(-1, 1, 4 * n_features).reshape(4, n_features))
        first.bias.fill_(0.1)
    return nn.Sequential(first.requires_grad_(False), nn.Tanh(), nn.Linear(4, 3), nn.Tanh())


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_factory_froze_is_neither_drawn_anew_nor_trained(name, monkeypatch):
    my_networks(monkeypatch, pretrained=pretrained)
    spec, data = federation(3)
    made = quick(name, network="my_networks:pretrained")
    first = made.init(spec, START)
    server, states, _ = run_rounds(made, spec, data, rounds=3)
    known = {n: v.double() for n, v in pretrained(2).named_parameters() if n.startswith("0.")}
    for n, v in known.items():
        assert torch.equal(server[f"theta/trunk.{n}"], v)
        own = [state[held] for state in states.values() for held in state if held.endswith(f"/trunk.{n}")]
        assert all(torch.equal(mine, v) for mine in own)
        assert len(own) == (3 if name in ("pfedme", "ditto") else 0)  # no control, no step is kept for it
    assert not torch.equal(server["theta/trunk.2.weight"], first["theta/trunk.2.weight"])


# ---- clients without labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "weighting"),
    [
        (name, weight)
        for name in NETWORKS
        for weight in ("samples", "uniform")
        if (name, weight) != ("scaffold", "samples")
    ],
)
def test_a_client_without_labels_has_no_say(name, weighting):
    spec, data = federation(3)
    nobody = ClientData(data["client 0"].x, {}, data["client 0"].codecs)
    spec = replace(spec, clients=(*data, "nobody"))
    made = quick(name, hidden=(4,), weighting=weighting)
    alone, _, _ = run_rounds(made, spec, data, rounds=2)
    both, states, updates = run_rounds(made, spec, data | {"nobody": nobody}, rounds=2)
    for n, v in alone.items():
        torch.testing.assert_close(both[n], v, rtol=0, atol=1e-14)
    assert updates["nobody"].weight == 0
    assert all(torch.isfinite(v).all() for v in updates["nobody"].wire().values())
    x = data["client 0"].x
    assert np.isfinite(made.predictor(both, states["nobody"], nobody)(x)["regression"].mean).all()
    first = made.init(spec, START)
    after, _, _ = run_rounds(made, spec, {"nobody": nobody}, rounds=1)
    assert all(torch.equal(after[n], v) for n, v in first.items())


# ---- predictions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_the_clients_own_model_differs_from_the_servers_where_a_method_says_so(name):
    """Of a client that took part, and of one that never did and joins."""
    spec, data = federation(3)
    made = quick(name, hidden=(4,))
    server, states, _ = run_rounds(made, spec, {n: d for n, d in data.items() if n != "client 2"}, rounds=2)
    late = data["client 2"]
    for mine, state in ((data["client 0"], states["client 0"]), (late, made.join(server, late, Stream(0, "join")))):
        own, shared = (made.predictor(server, s, mine)(mine.x)["regression"].mean for s in (state, None))
        assert np.array_equal(own, shared) is not made.personalises
        assert bool(np.abs(own - shared).max() > 1e-6) is made.personalises


# ---- kinds of tasks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regression", "robust", "binary", "multiclass", "count", "proportion"])
@pytest.mark.parametrize("name", ["fedavg", "fedper", "scaffold", "pfedme", "ditto", "fedbabu", "fedrod"])
def test_every_kind_of_task_is_learned_and_predicted(name, kind):
    spec, data = federation(3, kinds=(kind,), whole=True)
    options = {"learning_rate": 0.2} if name != "pfedme" else {"personal_rate": 0.02}
    made = method(name, hidden=(8,), **options)
    first = run_rounds(made, spec, data, rounds=1)[2]
    server, states, last = run_rounds(made, spec, data, rounds=8)
    loss = [np.mean([update.metrics["loss"] for update in updates.values()]) for updates in (first, last)]
    assert loss[1] < loss[0]
    mine = data["client 0"]
    prediction = made.predictor(server, states["client 0"], mine)(mine.x)[kind]
    truth = mine.codecs[kind].decode(mine.labels[kind][1])
    assert np.isfinite(prediction.take(mine.labels[kind][0]).log_density(truth)).all()
