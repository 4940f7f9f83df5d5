"""FedAvg against numbers by hand and against what one machine would compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss, softplus

from federations import KINDS, START, federation, one_round, run_rounds
from method_toys import LINEAR, begin, toy, value
from polyfed.data import ClientData
from polyfed.methods import FedAvg
from polyfed.methods.messages import strip_prefix
from polyfed.methods.supervised import supervision_of


def test_fedavg_by_hand():
    """Targets 1 and 4 with 4 and 8 labels, from 0: one step of 0.1 gives w = 0.1 and 0.4; weighted (4·0.1 + 8·0.4)/12 = 0.3."""
    spec, data = toy(1, 4)
    _, large = toy(4, n=8)
    data["client 1"] = large["client 0"]
    made = FedAvg(**LINEAR)
    server, states = begin(made, spec, data)
    after, _ = one_round(made, server, states, data)
    assert value(after) == pytest.approx(0.3, abs=1e-15)
    uniform, _ = one_round(FedAvg(**LINEAR, weighting="uniform"), server, states, data)
    assert value(uniform) == pytest.approx(0.25, abs=1e-15)
    half, _ = one_round(FedAvg(**LINEAR, server_rate=0.5), server, states, data)
    assert value(half) == pytest.approx(0.15, abs=1e-15)


@pytest.mark.parametrize("task_mode", ["shared", "separate"])
def test_one_full_batch_epoch_with_everyone_is_one_step_on_the_pooled_loss(task_mode):
    """With all tasks at all clients and as many labels of each, so that the weights of all parameters agree."""
    spec, data = federation(3, whole=True)
    made = FedAvg(
        batch_size=1000, local_epochs=1, learning_rate=0.1, task_mode=task_mode, hidden=(5,), activation="tanh"
    )
    server, states = made.init(spec, START), {n: made.start(d, START) for n, d in data.items()}
    after, _ = one_round(made, server, states, data)
    net = made.net_of(spec)
    leaves = {name: v.clone().requires_grad_() for name, v in strip_prefix(server, "theta").items()}
    losses = {}
    for name, mine in data.items():
        for task, (where, y) in mine.labels.items():
            outputs = net(leaves, torch.from_numpy(mine.x[where]), task)
            codec = mine.codecs[task]
            losses[name, task] = supervision_of(codec).loss(outputs, torch.from_numpy(y), codec)
    for name, leaf in leaves.items():
        owner = net.owner(name)
        total, weight = 0.0, 0.0
        for client, mine in data.items():
            counts = mine.counts()
            n = sum(counts.values()) if owner is None else counts[owner]
            own = [loss for (c, task), loss in losses.items() if c == client and owner in (None, task)]
            total, weight = total + n * sum(own), weight + n
        (gradient,) = torch.autograd.grad(total / weight, leaf, retain_graph=True)
        torch.testing.assert_close(after[f"theta/{name}"], leaf.detach() - 0.1 * gradient, rtol=0, atol=1e-12)


def test_identical_clients_are_as_one_and_order_does_not_matter():
    spec, data = federation(1)
    twins = {"client 0": data["client 0"], "client 1": data["client 0"]}
    made = FedAvg(batch_size=1000)
    alone, _, _ = run_rounds(made, spec, data, rounds=3)
    together, _, _ = run_rounds(made, spec, twins, rounds=3)
    for name in strip_prefix(alone, "theta"):
        torch.testing.assert_close(alone[f"theta/{name}"], together[f"theta/{name}"], rtol=0, atol=1e-12)
    spec, data = federation(3)
    a, _, _ = run_rounds(made, spec, data, rounds=2)
    b, _, _ = run_rounds(made, spec, dict(reversed(data.items())), rounds=2)
    assert all(torch.equal(v, b[n]) for n, v in a.items())


def test_separate_tasks_learn_as_if_each_had_a_run_of_its_own():
    spec, data = federation(3)
    made = FedAvg(task_mode="separate", hidden=(4,), batch_size=4)
    server = made.init(spec, START)
    both, _, _ = run_rounds(made, spec, data, rounds=2)
    for i, task in enumerate(KINDS):
        only = {n: ClientData(d.x, {t: p for t, p in d.labels.items() if t == task}, d.codecs) for n, d in data.items()}
        only = {n: d for n, d in only.items() if d.n_labels}
        alone, _, _ = run_rounds(made, spec, only, rounds=2)
        mine = [n for n in strip_prefix(server, "theta") if n.startswith((f"trunk.{i}.", f"head.{i}."))]
        others = [n for n in strip_prefix(server, "theta") if n not in mine]
        assert all(torch.equal(alone[f"theta/{n}"], server[f"theta/{n}"]) for n in others)  # untouched, to the bit
        assert not any(torch.equal(both[f"theta/{n}"], server[f"theta/{n}"]) for n in mine)


def test_finetuning_makes_a_model_of_ones_own():
    spec, data = toy(1, 4)
    made = FedAvg(**LINEAR, finetune_epochs=1)
    server, states = begin(made, spec, data, w=2.0)
    x = np.ones((1, 1))
    assert made.predictor(server, None, data["client 0"])(x)["y"].mean[0] == pytest.approx(2.0)
    # one step of 0.1 on the gradient 2 − 1 for weight and bias: 2 − 0.1 − 0.1
    assert made.predictor(server, states["client 0"], data["client 0"])(x)["y"].mean[0] == pytest.approx(1.8)


def test_one_client_federated_is_that_client_trained_by_torch():
    """Rounds of two full-batch epochs by torch's own SGD, whose momentum begins anew in every round."""
    spec, data = federation(1, kinds=("regression", "binary"))
    options = {"learning_rate": 0.1, "momentum": 0.5, "weight_decay": 0.01}
    made = FedAvg(hidden=(5,), activation="tanh", batch_size=1000, local_epochs=2, **options)
    first, mine = strip_prefix(made.init(spec, START), "theta"), data["client 0"]
    names = ("trunk.0", "head.0", "head.1")
    layers = {name: nn.Linear(*reversed(first[f"{name}.weight"].shape), dtype=torch.float64) for name in names}
    for name, layer in layers.items():
        layer.load_state_dict({kind: first[f"{name}.{kind}"] for kind in ("weight", "bias")})
    (at, y), (there, sign) = (mine.labels[task] for task in ("regression", "binary"))
    for _ in range(3):
        sgd = torch.optim.SGD(
            [p for layer in layers.values() for p in layer.parameters()], lr=0.1, momentum=0.5, weight_decay=0.01
        )
        for _ in range(2):
            sgd.zero_grad()
            f, g = (
                layers[head](layers["trunk.0"](torch.from_numpy(mine.x[rows])).tanh())[:, 0]
                for head, rows in (("head.0", at), ("head.1", there))
            )
            (mse_loss(f, torch.from_numpy(y)) / 2 + softplus(-torch.from_numpy(sign) * g).mean()).backward()
            sgd.step()
    server, _, _ = run_rounds(made, spec, data, rounds=3)
    for name, layer in layers.items():
        for kind, found in layer.named_parameters():
            torch.testing.assert_close(server[f"theta/{name}.{kind}"], found.detach(), rtol=0, atol=1e-12)
