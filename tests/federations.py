"""Small federations for the tests of methods (coded data) and of the engine (data as users have them)."""

from __future__ import annotations

import sys
import types

import numpy as np
from torch import nn

import polyfed as pf
from polyfed.data import ClientData, FederationSpec, LabelCodec, Task
from polyfed.methods import Job, Method
from polyfed.seeds import Stream

KINDS = ("regression", "binary", "count")
START = Stream(0, "start")


def codecs_of(kinds=KINDS):
    classes = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c")}
    tasks = {kind: Task(kind, kind, classes=classes.get(kind)) for kind in kinds}
    return {name: LabelCodec(task, task.classes, 0.0, 2.0 if name == "count" else 1.0) for name, task in tasks.items()}


def labels_of(kind, f, rng):
    if kind in ("regression", "robust"):
        return f + 0.2 * rng.standard_normal(len(f))
    if kind == "binary":
        return np.where(rng.random(len(f)) < 1 / (1 + np.exp(-3 * f)), 1.0, -1.0)
    if kind == "multiclass":
        return rng.integers(0, 3, len(f)).astype(float)
    if kind == "proportion":
        return np.column_stack([rng.binomial(5, 1 / (1 + np.exp(-f))), np.full(len(f), 5)]).astype(float)
    return rng.poisson(2 * np.exp(f)).astype(float)


def client(rng, n=12, n_features=2, kinds=KINDS, lacks=()):
    """One client whose tasks have some labels each; `lacks` has none."""
    x = rng.uniform(-2, 2, (n, n_features))
    f = np.sin(2 * x[:, 0] + 0.5 * rng.standard_normal())
    seen = {}
    for kind in kinds:
        if kind not in lacks:
            at = np.sort(rng.permutation(n)[: max(1, 2 * n // 3)])
            seen[kind] = (at, labels_of(kind, f, rng)[at])
    return ClientData(x, seen, codecs_of(kinds))


def federation(n_clients=4, seed=0, kinds=KINDS, n_features=2, whole=False):
    """Clients of different sizes; unless `whole`, each but the first lacks a task."""
    rng = np.random.default_rng(seed)
    data = {}
    for i in range(n_clients):
        lacks = () if whole or i == 0 or len(kinds) < 2 else (kinds[i % len(kinds)],)
        data[f"client {i}"] = client(rng, 8 + 3 * i, n_features, kinds, lacks)
    spec = FederationSpec(
        tuple(codec.task for codec in codecs_of(kinds).values()), n_features, tuple(data), codecs_of(kinds)
    )
    return spec, data


def run_rounds(method: Method, spec, data, rounds=3, seed=0, start=None):
    """Rounds with everyone, without an engine: server state, client states, and the updates of the last round."""
    server = method.init(spec, START)
    states = {name: method.start(mine, START) for name, mine in data.items()}
    updates = {}
    for r in range(1, rounds + 1):
        jobs = [
            Job(name, states[name], method.broadcast(server, name), mine, Stream(seed, "local", r, name))
            for name, mine in data.items()
        ]
        for job, outcome in zip(jobs, method.local_many(jobs), strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            states[job.client], updates[job.client] = outcome
        server = method.aggregate(server, updates)
    return server, states, updates


def one_round(made: Method, server, states, data, who=None, round=1):
    """One round of the clients in `who`, one by one; `states` move on in place."""
    updates = {}
    for name in who or data:
        message = made.broadcast(server, name)
        states[name], updates[name] = made.local(states[name], message, data[name], Stream(0, "local", round, name))
    return made.aggregate(server, updates), updates


def fit_of(made: Method, kind, rounds):
    """Mean log density of the training labels of one task of this kind, after so many rounds."""
    spec, data = federation(3, kinds=(kind,), whole=True)
    server, states, _ = run_rounds(made, spec, data, rounds=rounds)
    found = []
    for name, mine in data.items():
        at, y = mine.labels[kind]
        read = made.predictor(server, states[name], mine)(mine.x)[kind].take(at)
        found.append(read.log_density(mine.codecs[kind].decode(y)).mean())
    return np.mean(found)


def normed(n_features):
    """A trunk with batch norm."""
    return nn.Sequential(nn.Linear(n_features, 5), nn.BatchNorm1d(5), nn.ReLU())


def my_networks(monkeypatch, **factories):
    """Makes `network="my_networks:name"` find these factories."""
    module = types.ModuleType("my_networks")
    vars(module).update(factories)
    monkeypatch.setitem(sys.modules, "my_networks", module)


# ---- as users have them ------------------------------------------------------------------------------------------

TASKS = {"height": "regression", "high": "binary", "visits": "count"}


def people(rng, n, lacks=()):
    x = rng.uniform(-3, 3, (n, 2))
    f = np.sin(x[:, 0] + 0.3 * rng.standard_normal())
    data = {
        "height": (x, 100 + 10 * (f + 0.2 * rng.standard_normal(n))),
        "high": (x, np.where(rng.random(n) < 1 / (1 + np.exp(-4 * f)), "yes", "no")),
        "visits": (x, rng.poisson(3 * np.exp(f))),
    }
    return {task: pair for task, pair in data.items() if task not in lacks}


def make_federation(n_clients=4, seed=0, reverse=False, **options):
    rng = np.random.default_rng(seed)
    lacks = [(), ("visits",), ("high",), ()]
    clients = {f"client {i}": people(rng, 14 + 2 * i, lacks[i % 4]) for i in range(n_clients)}
    if reverse:
        clients = dict(reversed(clients.items()))
    tasks = [pf.Task(name, kind, classes=("no", "yes") if kind == "binary" else None) for name, kind in TASKS.items()]
    return pf.Federation.from_clients(clients, tasks, split=pf.Split(test=0.3, validation=0.1), **options)
