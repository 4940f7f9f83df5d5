"""What leaves a client on Flower, looked at as it travels."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from flwr.common.serde import message_to_proto

from flower_runs import NAMES, TASKS, nodes_of, on_grid, study
from polyfed.data.schema.vetting import FIELDS
from polyfed.flower.client_app import app
from polyfed.flower.grid import SERVER, InProcessGrid
from polyfed.flower.wire import opened
from polyfed.methods import known_methods, method

METHODS = known_methods()

FEDERATED = [name for name in METHODS if not method(name).pools_data]
FAST = {"pfedme": {"local_steps": 2}, "fedpac": {"local_epochs": 1}, "pfedvem": {"head_steps": 2, "local_epochs": 1}}


def odd_tables(folder):
    """Tables whose every number is of its own, so that it is known again wherever it turns up."""
    rng = np.random.default_rng(7)
    folder.mkdir()
    for name in NAMES:
        x = rng.uniform(-2, 2, 12)
        high = np.where(np.sin(x) > 0, "yes", "no")
        pd.DataFrame(
            {"age": x, "ward": rng.uniform(5, 6, 12), "height": np.sin(x) + rng.normal(0, 0.1, 12), "high": high}
        ).to_csv(folder / f"{name}.csv", index=False, float_format="%.17g")
    return folder


@pytest.mark.parametrize("name", FEDERATED)
def test_no_number_of_the_data_leaves_a_client(name, tmp_path):
    tables, seen = odd_tables(tmp_path / "tables"), []
    grid = InProcessGrid(app, nodes_of(tables, tmp_path / "state"), watch=seen.append)
    server_run = on_grid(study(name, rounds=2, **FAST.get(name, {})), tables, tmp_path, grid=grid)
    sent = [message for message in seen if message.metadata.src_node_id != SERVER]
    kinds = {message.metadata.message_type for message in sent}
    assert kinds == {"query", "train", "evaluate"}
    template = server_run.method.template(server_run.federation_state.server).wire()
    for message in sent:
        client = NAMES[message.metadata.src_node_id - SERVER - 1]
        private = private_numbers(pd.read_csv(tables / f"{client}.csv"), tmp_path / "state" / client)
        note, arrays = opened(message)
        assert not private & numbers_of(note)
        assert not private & {float(v) for array in arrays.values() for v in np.ravel(array.numpy().astype(float))}
        if message.metadata.message_type == "train":
            # Names and shapes are known beforehand: there is no room that grows with the data.
            assert shapes(arrays) == shapes(template)
            assert note == {"client": client, "lost": False}
        else:
            assert not arrays
        raw = message_to_proto(message).SerializeToString()
        assert not [n for n in private if np.float64(n).tobytes() in raw]


def test_round_0_tells_columns_and_moments_alone(tmp_path):
    tables, seen = odd_tables(tmp_path / "tables"), []
    grid = InProcessGrid(app, nodes_of(tables, tmp_path / "state"), watch=seen.append)
    on_grid(study(rounds=1), tables, tmp_path, grid=grid)
    summaries = [opened(m)[0] for m in seen if m.metadata.message_type == "query" and m.metadata.src_node_id != SERVER]
    assert [set(one) for one in summaries] == [{"client", "versions", "summary"}] * 3
    assert set(summaries[0]["summary"]) == set(FIELDS)


def shapes(wire):
    """By name; in which order the tasks are counted is no matter."""
    return {re.sub(r"^labels/\d+/", "labels/", name): value.shape for name, value in wire.items()}


def private_numbers(table, state) -> set[float]:
    """Features and targets as they came, and as they are coded."""
    from safetensors.numpy import load

    (path,) = state.glob("*/*/prepared.safetensors")
    coded = [v for name, v in load(path.read_bytes()).items() if name.endswith(("/x", "/y"))]
    found = {float(v) for v in table[["age", "ward", TASKS[0]["name"]]].to_numpy().ravel()}
    found |= {float(v) for array in coded for v in np.ravel(array)}
    return {v for v in found if v not in (-1.0, 0.0, 1.0)}  # classes are no secret


def numbers_of(note) -> set[float]:
    found = set()

    def walk(value):
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.add(float(value))

    walk(json.loads(json.dumps(note)))
    return found
