"""What leaves a client, and how large it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from federations import federation, run_rounds
from polyfed.methods import ClientUpdate, Local, PFedMul, PFedSt
from polyfed.methods.messages import from_bytes, n_bytes, to_bytes

KINDS = ("regression", "binary", "count", "multiclass", "proportion", "robust")
TRIVIAL = {0.0, 1.0, -1.0}


def numbers(values) -> set[float]:
    return set(np.asarray(values, dtype=np.float64).reshape(-1).tolist())


def tensors(state) -> set[float]:
    return set().union(*(numbers(value.numpy()) for value in state.values())) if state else set()


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
    scheme=st.sampled_from(["K", "W", "A", ("mixing",), ()]),
    mode=st.sampled_from(["gradient", "average"]),
    made=st.sampled_from([PFedMul, PFedSt, Local]),
    inducing=st.sampled_from([None, 4]),
)
def test_nothing_private_leaves_a_client(seed, kinds, scheme, mode, made, inducing):
    method = made(scheme=() if made is Local else scheme, mode=mode, inducing=inducing)
    spec, data = federation(3, seed=seed, kinds=tuple(kinds))
    server, states, updates = run_rounds(method, spec, data, rounds=2, seed=seed)
    expected = method.template(server).wire()
    for name, update in updates.items():
        wire = update.wire()
        # Its form is known to the server beforehand: there is no room in it that grows with the data.
        assert {n: v.shape for n, v in wire.items()} == {n: v.shape for n, v in expected.items()}
        sent = tensors({n: v for n, v in wire.items() if not n.startswith(("labels/", "weight", "count/"))}) - TRIVIAL
        mine = data[name]
        labels = [
            y for kind, (_, y) in mine.labels.items() if kind in ("regression", "robust")
        ]  # others are small integers
        assert not sent & numbers(mine.x)  # inducing inputs are among these
        assert not sent & set().union(*map(numbers, labels))
        assert not sent & (tensors(states[name]) - TRIVIAL)  # personal parameters and posteriors
        shared = {n.rpartition("/")[2] for n in method.broadcast(server, name)}
        assert {n.rpartition("/")[2] for n in [*update.arrays, *update.pooled]} == shared


@pytest.mark.parametrize("made", [PFedMul, PFedSt, Local])
def test_the_bytes_that_are_counted_are_the_bytes_that_travel(made):
    spec, data = federation(3)
    server, _, updates = run_rounds(made(), spec, data, rounds=1)
    for name, update in updates.items():
        content = to_bytes(update.wire())
        assert update.n_bytes() == len(content) == n_bytes(update.wire())
        again = ClientUpdate.from_wire(from_bytes(content))
        assert again.counts == update.counts
        assert again.weight == update.weight
        assert again.metrics == update.metrics
        for part, other in ((again.arrays, update.arrays), (dict(again.pooled), dict(update.pooled))):
            assert part.keys() == other.keys()
        assert all(torch.equal(value, update.arrays[n]) for n, value in again.arrays.items())
        assert all(torch.equal(total, update.pooled[n][0]) for n, (total, _) in again.pooled.items())
        message = made().broadcast(server, name)
        assert n_bytes(message) == len(to_bytes(message))


def test_a_federation_that_shares_nothing_sends_no_parameter():
    spec, data = federation(2)
    _, _, updates = run_rounds(Local(), spec, data, rounds=1)
    assert all(not update.arrays and not update.pooled for update in updates.values())


def test_the_order_of_the_tasks_survives_the_wire():
    """safetensors hands back names in any order; methods number their tasks."""
    counts = {
        name: i
        for i, name in enumerate(["stage", "a/b", "pulse", "1", "0", "zeta", "alpha"] + [f"t{i}" for i in range(9)])
    }
    content = to_bytes(ClientUpdate({}, counts=counts).wire())
    for _ in range(5):
        assert list(ClientUpdate.from_wire(from_bytes(content)).counts.items()) == list(counts.items())
