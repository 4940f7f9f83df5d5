"""The same study in this process and on Flower's Grid."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import polyfed as pf
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.experiments.reading import check
from polyfed.flower.client_app import app
from polyfed.flower.grid import InProcessGrid
from polyfed.flower.serving import ServeConfig, serve
from polyfed.flower.strategy import Timeouts

TASKS = [{"name": "height", "kind": "regression"}, {"name": "high", "kind": "binary"}]
NAMES = ("basel", "bern", "thun")


def write_tables(folder: Path) -> Path:
    """basel.csv, bern.csv and thun.csv; thun has no label of `high`."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i, name in enumerate(NAMES):
        x = rng.uniform(-2, 2, (14 + 2 * i, 2))
        f = np.sin(2 * x[:, 0])
        table = pd.DataFrame({"age": 50 + 10 * x[:, 0], "ward": np.where(x[:, 1] > 0, "north", "south")})
        table["height"] = 100 + 10 * f + rng.standard_normal(len(x))
        if name != "thun":
            table["high"] = np.where(f + 0.3 * rng.standard_normal(len(x)) > 0, "yes", "no")
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def new_rows() -> pd.DataFrame:
    return pd.DataFrame({"age": [35.0, 50.0, 61.0], "ward": ["north", "south", "north"]})


def study(method="pfed-mul", rounds=3, data=None, **options):
    run = {key: options.pop(key) for key in ("seed", "sample", "evaluate_every", "quorum") if key in options}
    document = {
        "data": {"tasks": TASKS, "test": 0.25, **(data or {})},
        "method": {"name": method, **options},
        "run": {"rounds": rounds, "evaluate_every": 2, **run},
    }
    return check(document, "study.toml")


OPEN = {"min-rows": 1, "min-count": 1}  # of a node whose owner lets everything leave, as in one process


def nodes_of(tables, state, names=NAMES, limits=OPEN):
    return [{"data": str(tables / f"{name}.csv"), "state": str(state / name), **limits} for name in names]


def on_grid(config, tables, place, *, grid=None, timeouts=None, names=NAMES, watch=None):
    """Run on the Grid, with every message through Flower's wire format."""
    grid = grid or InProcessGrid(app, nodes_of(tables, place / "state", names), watch=watch)
    return serve(grid, ServeConfig(config, place / "server", timeouts or Timeouts(nodes=len(names), wait=0.0)))


def in_process(config, tables):
    split = pf.Split(test=config.data.test, validation=config.data.validation or 0.0)
    tasks = [task.task() for task in config.data.tasks]
    scaling = config.data.scaling or "federated"
    federation = pf.Federation.from_table(tables, tasks=tasks, split=split, scaling=scaling)
    settings = config.run.model_dump(exclude={"folder"})
    return pf.simulate(config.method.name, federation, **settings, **config.method.options)


def on_node(place, run, name):
    """The client's own run, from the folder in which its node keeps it."""
    return run_of_node(place / "state" / name, place / "server", name)


def run_of_node(state, server_folder, name):
    """The client's own run of the study in the server's folder."""
    about = json.loads((server_folder / "flower.json").read_text())
    return pf.load(state / about["study"] / f"client-{name}")


def replayed(tables, rounds, *, seed, scheme="K"):
    """The same rounds in this process, each with those clients whose updates were used."""
    config = study(rounds=0, scheme=scheme, seed=seed)
    run = in_process(config, tables)
    progress, lenient = run.federation_state, Settings(rounds=len(rounds), seed=seed, quorum=0.0)
    for event in rounds:
        who = [name for name in event["sampled"] if name not in event["rejected"]] if event["used"] else []
        if who:
            progress, _ = run_round(run.method, progress, run.members.training, lenient, participants=who)
        else:
            progress = FederationState(event["round"], progress.server, progress.clients)
    run.federation_state = progress
    return run


def assert_same_server(a, b, tolerance=1e-10):
    assert a.keys() == b.keys()
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], atol=tolerance, rtol=tolerance, msg=name)


def assert_same_predictions(one, other, name, X, tolerance=1e-10):
    a, b = one.client(name).predict(X), other.client(name).predict(X)
    np.testing.assert_allclose(a["height"].mean, b["height"].mean, rtol=tolerance)
    np.testing.assert_allclose(a["height"].std, b["height"].std, rtol=tolerance)
    np.testing.assert_allclose(a["high"].proba, b["high"].proba, atol=tolerance)


def assert_same_events(a, b):
    """Everything that happened, but for the last digits of numbers."""
    assert len(a) == len(b)
    for mine, theirs in zip(a, b, strict=True):
        _same(mine, theirs)


def _same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key, value in a.items():
            _same(value, b[key])
    elif isinstance(a, float):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-10)
    else:
        assert a == b
