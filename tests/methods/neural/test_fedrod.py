"""FedRoD against numbers by hand and against its two losses written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, linear, log_softmax

from federations import codecs_of, federation, one_round, run_rounds
from method_toys import LINEAR, begin, client_of, spec_of, toy, value
from polyfed.methods import FedRoD
from polyfed.methods.messages import strip_prefix
from polyfed.seeds import Stream

CLASSES = {"y": codecs_of(("multiclass",))["multiclass"]}
TWO = {"y": codecs_of(("binary",))["binary"]}


def test_two_rounds_by_hand():
    """f = w + b from zero, labels 3 and 0, steps of 0.1; without classes both losses are plain.

    Round 1, ann: both heads have slopes −3: generic 0.3, own 0.3. bob moves nothing. The server has 0.15.
    ann predicts 2 (0.15 + 0.3) = 0.9, the server alone 0.3.
    Round 2, ann: generic f − 3 = −2.7: 0.15 + 0.27 = 0.42; both heads together f − 3 = −2.1: own 0.3 + 0.21 = 0.51.
    """
    made = FedRoD(**LINEAR)
    spec, data = toy(3.0, 0.0)
    ann, _ = data
    server, states = begin(made, spec, data)
    server, updates = one_round(made, server, states, data)
    assert updates[ann].arrays.keys() == {"head.0.weight", "head.0.bias"}
    assert value(server) == pytest.approx(0.15, abs=1e-15)
    x = np.ones((1, 1))
    assert made.predictor(server, states[ann], data[ann])(x)["y"].mean[0] == pytest.approx(0.9, abs=1e-14)
    assert made.predictor(server, None, data[ann])(x)["y"].mean[0] == pytest.approx(0.3, abs=1e-14)
    _, updates = one_round(made, server, states, data, round=2)
    assert value(updates[ann].arrays, "head.0.weight") == pytest.approx(0.27, abs=1e-14)
    assert value(states[ann], "personal/own_head.0.weight") == pytest.approx(0.51, abs=1e-14)


@pytest.mark.parametrize(
    ("codecs", "y", "own"),
    [
        (CLASSES, [0, 0, 0, 1], [0.1 * (0.75 - 1 / 3), 0.1 * (0.25 - 1 / 3), -0.1 / 3]),
        (TWO, [1, 1, 1, -1], [0.1 * (0.75 - 0.5)]),
    ],
)
def test_how_often_a_class_occurs_is_the_personal_heads_to_learn(codecs, y, own):
    """Features zero, heads zero. Balanced softmax: n_c e⁰ / Σ n = n_c/n, the frequency itself: the generic bias stays.
    The personal loss: 1/K (or ½) against the frequencies, which is what its bias moves towards. Class c has no label.
    """
    data = {"ann": client_of([0] * 4, y, codecs)}
    made = FedRoD(**LINEAR)
    server = made.init(spec_of(data), Stream(0, "start"))
    server |= {n: torch.zeros_like(v) for n, v in server.items() if "head." in n}
    states = {"ann": made.start(data["ann"], Stream(0, "start"))}
    _, updates = one_round(made, server, states, data)
    np.testing.assert_allclose(updates["ann"].arrays["head.0.bias"], 0.0, atol=1e-15)
    np.testing.assert_allclose(states["ann"]["personal/own_head.0.bias"], own, atol=1e-15)


def test_gradients_are_those_of_the_two_losses():
    """Written out with torch's own functions: trunk and generic head by the balanced loss, the personal head by the other."""
    _, data = federation(1, kinds=("multiclass", "binary"), whole=True)
    mine, made = data["client 0"], FedRoD(hidden=(4,), activation="tanh")
    net = made.net_of(mine)
    values = made.initial(net, mine.codecs, 3)
    values |= {
        n: torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=v.dtype) for n, v in values.items()
    }
    batch = {task: np.arange(len(at)) for task, (at, _) in mine.labels.items()}
    names = made.trainable(net, values)
    _, found = made.gradient(net, values, mine, batch, names)
    leaves = {name: values[name].clone().requires_grad_() for name in names}

    def outputs(task, i, label, trunk):
        at, y = mine.labels[task]
        h = torch.tanh(linear(torch.from_numpy(mine.x[at]), trunk["trunk.0.weight"], trunk["trunk.0.bias"]))
        return linear(h, leaves[f"{label}head.{i}.weight"], leaves[f"{label}head.{i}.bias"]), torch.from_numpy(y)

    f, y = outputs("multiclass", 0, "", leaves)
    n = torch.bincount(y.long(), minlength=3).double()
    generic = -log_softmax(f + n.log(), 1)[torch.arange(len(y)), y.long()].mean()
    g, z = outputs("binary", 1, "", leaves)
    shift = torch.log((z > 0).double().sum() / (z < 0).sum())
    generic = generic + binary_cross_entropy_with_logits(g + shift, (z > 0).double()[:, None])
    f_own, g_own = outputs("multiclass", 0, "own_", values)[0], outputs("binary", 1, "own_", values)[0]
    own = -log_softmax(f.detach() + f_own, 1)[torch.arange(len(y)), y.long()].mean()
    own = own + binary_cross_entropy_with_logits(g.detach() + g_own, (z > 0).double()[:, None])
    for loss, chosen in ((generic, [n for n in names if "own_" not in n]), (own, [n for n in names if "own_" in n])):
        assert chosen
        wanted = torch.autograd.grad(loss, [leaves[n] for n in chosen])
        for name, g_wanted in zip(chosen, wanted, strict=True):
            torch.testing.assert_close(found[name], g_wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("codecs", "y"), [(CLASSES, [2, 2, 2]), (TWO, [1, 1, 1]), (TWO, [-1, -1, -1])])
def test_a_client_of_one_class_teaches_the_generic_model_nothing(codecs, y):
    """Among the classes that it has there is nothing to tell apart."""
    data = {"ann": client_of([1, 2, 3], y, codecs)}
    made = FedRoD(hidden=(3,), batch_size=100)
    _, states, updates = run_rounds(made, spec_of(data), data, rounds=2)
    assert not any(v.any() for v in updates["ann"].arrays.values())
    assert np.isfinite(updates["ann"].metrics["loss"])
    assert states["ann"]["personal/own_head.0.bias"].any()


def test_personal_heads_stay_at_home():
    spec, data = federation(3)
    server, states, updates = run_rounds(FedRoD(), spec, data, rounds=2)
    assert not any("own" in name for name in [*strip_prefix(server, "theta"), *updates["client 0"].arrays])
    assert not torch.allclose(*(states[f"client {i}"]["personal/own_head.0.weight"] for i in (0, 1)))


def test_a_late_joining_client_trains_its_personal_head_alone():
    """The generic f is 2, the label 5: own w = b = 0.3; then f = 2.6, away −2.4: 0.54. Its model says 2 + 1.08."""
    spec, data = toy(5.0)
    made = FedRoD(join_epochs=2, **LINEAR)
    server, _ = begin(made, spec, data, w=1.0, b=1.0)
    state = made.join(server, data["client 0"], Stream(0, "join"))
    assert state.keys() == {"personal/own_head.0.weight", "personal/own_head.0.bias"}
    read = made.predictor(server, state, data["client 0"])(np.ones((1, 1)))["y"]
    assert read.mean[0] == pytest.approx(3.08, abs=1e-14)
