"""Federations so small that a round can be done by hand.

The toy: one regression task with one feature that is always 1, no hidden layer. The head has one weight w and one bias b, so
f = w + b for every row, the loss of a client is ½ mean (y − w − b)², and both gradients are w + b − mean(y).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from federations import START
from polyfed.data import ClientData, FederationSpec, LabelCodec, Task

NUMBER = {"y": LabelCodec(Task("y"), None, 0.0, 1.0)}
LINEAR = {"hidden": (), "batch_size": 100, "local_epochs": 1, "learning_rate": 0.1}


def client_of(x, y, codecs=NUMBER):
    """A client with these inputs and labels of the task y."""
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    return ClientData(x, {"y": (np.arange(len(x)), np.asarray(y, dtype=float))}, codecs)


def spec_of(data):
    any_client = next(iter(data.values()))
    tasks = tuple(codec.task for codec in any_client.codecs.values())
    return FederationSpec(tasks, any_client.n_features, tuple(data), any_client.codecs)


def toy(*targets, n=4):
    """One client for each target: all its labels are that number."""
    data = {f"client {i}": client_of([1] * n, [t] * n) for i, t in enumerate(targets)}
    return spec_of(data), data


def at(server, w=0.0, b=0.0):
    """The server with these values of weight and bias."""
    return server | {
        "theta/head.0.weight": torch.full((1, 1), w, dtype=torch.float64),
        "theta/head.0.bias": torch.full((1,), b, dtype=torch.float64),
    }


def value(state, name="theta/head.0.weight"):
    return float(state[name].reshape(-1)[0])


def begin(made, spec, data, **values):
    return at(made.init(spec, START), **values), {name: made.start(mine, START) for name, mine in data.items()}


def one_weight(n_features):
    """A trunk whose features are t x, with t = 1 at first."""
    layer = nn.Linear(1, 1, bias=False)
    layer.reset_parameters = lambda: nn.init.constant_(layer.weight, 1.0)
    return nn.Sequential(layer)


def tilted(state):
    """The state with all heads at weight one and bias zero, so that f = t x."""
    return state | {n: torch.full_like(v, float("weight" in n)) for n, v in state.items() if "head." in n}
