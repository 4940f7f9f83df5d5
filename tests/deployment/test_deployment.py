"""A server and three nodes as separate processes, and what happens when they misbehave or die.

Whatever happened, the oracle is the same: the rounds in this process, with those clients in each round whose updates the
server says it used. Personal parameters stay on the nodes (scheme K), so a node that lost its state would show.
"""

from __future__ import annotations

import json
import threading

import pytest

import polyfed as pf
from flower_playing import (
    NAMES,
    assert_same_predictions,
    assert_same_server,
    new_rows,
    replayed,
    run_of_node,
)

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="looks into /proc")

FAULTY = '''
"""polyfed's client app, but for what happens to some clients in some rounds."""
import json, os, time
import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from polyfed.flower.client_app import app as sound
from polyfed.flower.wire import content, opened

app = ClientApp()
FAULTS = {faults!r}  # (round, client) -> what

@app.query()
def describe(message, context):
    return sound(message, context)

@app.evaluate()
def evaluate(message, context):
    return sound(message, context)

@app.train()
def train(message, context):
    fault = FAULTS.get((opened(message)[0]["round"], context.node_config["client"]))
    if fault == "raise":
        raise RuntimeError("deliberate")
    if fault == "exit":
        os._exit(3)
    if fault == "hang":
        time.sleep(100000)
    reply = sound(message, context)
    note, arrays = opened(reply)
    name = next(name for name in arrays if name.startswith("arrays/"))
    if fault == "nan":
        arrays[name] = arrays[name] * float("nan")
    if fault == "shape":
        arrays[name] = torch.zeros(7)
    return Message(content(note, arrays), reply_to=message)
'''


def events_of(folder):
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounds_of(folder):
    return [event for event in events_of(folder) if event["event"] == "round"]


def assert_right(machines, folder):
    """The server's Θ, and every node's own predictions, are what the same rounds in this process give."""
    run = pf.load(folder)
    reference = replayed(machines.tables, rounds_of(folder), seed=run.settings.seed)
    assert_same_server(reference.progress.server, run.progress.server)
    for name in NAMES:
        own = run_of_node(machines.folder / "nodes" / name / "state", folder, name)
        assert_same_predictions(own, reference, name, new_rows())


def test_the_same_numbers_as_in_one_process(machines):
    folder = machines.root / "run-equal"
    study = machines.study("equal", rounds=2)
    done = machines.polyfed("deploy", "run", machines.folder, study, "--folder", folder, "--timeout", 300)
    assert "Round 2: 3 of 3 nodes" in done.stdout + done.stderr
    assert "flwr run" in done.stdout + done.stderr  # the underlying command
    assert [event["refused"] for event in rounds_of(folder)] == [{}, {}]
    assert "fewer than 1 training labels here" in machines.log("bern")
    assert "(lowered in node.toml; 10 and 5 are usual)" in machines.log("bern")
    assert_right(machines, folder)


def test_clients_that_raise_send_rubbish_or_exit(machines):
    faults = {(1, "bern"): "raise", (1, "basel"): "nan", (2, "thun"): "shape", (2, "bern"): "exit"}
    folder = machines.root / "run-faults"
    machines.app(FAULTY.format(faults=faults))
    try:
        study = machines.study("faults", rounds=3, quorum=0.3)
        machines.polyfed("deploy", "run", machines.folder, study, "--folder", folder, "--timeout", 150)
    finally:
        machines.app(None)
    refused = [event["refused"] for event in rounds_of(folder)]
    assert [sorted(names) for names in refused[:2]] == [["basel", "bern"], ["bern", "thun"]]
    assert "is not finite" in refused[0]["basel"]
    assert "has shape (7,)" in refused[1]["thun"]
    assert "RuntimeError: deliberate" in machines.log("bern")  # the whole story stays there
    log = (folder / "run.log").read_text()
    assert all(f"refused {client}" in log for client in NAMES)
    assert_right(machines, folder)


def test_a_node_is_killed_and_comes_back_with_its_state(machines):
    folder = machines.root / "run-node"
    study = machines.study("node", rounds=3, quorum=1.0)  # nobody goes on without bern

    def kill_bern():
        machines.wait(lambda: len(rounds_of(folder)) >= 1, "a round")
        machines.kill("bern")
        machines.node("bern")  # waits by itself until the server has forgotten the one that was killed

    killer = threading.Thread(target=kill_bern)
    killer.start()
    machines.polyfed(
        "deploy", "run", machines.folder, study, "--folder", folder, "--timeout", 100, "--wait", 300, check=True
    )
    killer.join()
    rounds = rounds_of(folder)
    assert rounds[0]["used"]
    assert rounds[-1]["used"]
    assert not rounds[-1]["refused"]
    assert_right(machines, folder)


def test_the_server_is_killed_and_the_study_resumed(machines):
    folder = machines.root / "run-server"
    study = machines.study("server", rounds=3)
    ended = []
    following = threading.Thread(
        target=lambda: ended.append(
            machines.polyfed(
                "deploy",
                "run",
                machines.folder,
                study,
                "--folder",
                folder,
                "--timeout",
                300,
                "--wait",
                300,
                check=False,
            )
        )
    )
    following.start()
    machines.wait(lambda: len(rounds_of(folder)) >= 1, "a round")
    machines.kill("server")
    machines.server()
    following.join()
    assert ended[0].returncode == 1  # the run was cut off, and is said to be
    assert "Traceback" not in ended[0].stderr
    machines.wait(lambda: machines.online() == set(NAMES), "the nodes to find the new server", pause=2.0)
    machines.polyfed("deploy", "resume", machines.folder, folder, "--timeout", 300, "--wait", 300)
    assert [(event["round"], event["refused"]) for event in rounds_of(folder)] == [(r, {}) for r in range(1, 4)]
    assert_right(machines, folder)


def test_a_client_that_hangs_costs_one_timeout(machines):
    folder = machines.root / "run-hang"
    machines.app(FAULTY.format(faults={(1, "bern"): "hang"}))
    try:
        study = machines.study("hang", rounds=2)
        machines.polyfed("deploy", "run", machines.folder, study, "--folder", folder, "--timeout", 60)
    finally:
        machines.app(None)
    first, second = rounds_of(folder)
    assert first["refused"] == {"bern": "NoAnswer: none within 60 s"}
    assert second["refused"] == {"bern": "NoAnswer: it did not answer before and is asked again later"}
    run = pf.load(folder)
    assert_same_server(replayed(machines.tables, [first, second], seed=0).progress.server, run.progress.server)


def test_strangers_are_refused(machines, tmp_path):
    other = tmp_path / "other"
    machines.polyfed("deploy", "init", other, "--host", "127.0.0.1", "--nodes", "zug")
    node, data, superlink = other / "nodes" / "zug", machines.tables / "bern.csv", f"127.0.0.1:{machines.port}"
    wrong = machines.polyfed("deploy", "node", node, "--data", data, "--superlink", superlink, check=False)
    assert wrong.returncode == 1
    assert "a certificate that ca.crt did not sign" in wrong.stderr
    (node / "ca.crt").write_bytes((machines.folder / "ca" / "ca.crt").read_bytes())
    unknown = machines.polyfed("deploy", "node", node, "--data", data, "--superlink", superlink, check=False)
    assert unknown.returncode == 1
    assert "the server refuses this node's key" in unknown.stderr
    assert machines.online() <= set(NAMES)
