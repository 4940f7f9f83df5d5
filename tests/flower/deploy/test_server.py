"""A server that is up takes a new certificate by itself, and cuts off no run for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest

pytest.importorskip("flwr", reason="deployments need Flower: pip install 'polyfed[flower]'")

from polyfed.flower.deploy import commands, making, server
from polyfed.flower.deploy.making import make_deployment


class Link:
    """A SuperLink that starts and stays until it is stopped."""

    started = 0

    def __init__(self, *_):
        Link.started += 1
        self.code = None

    def stop(self):
        self.code = 0


def test_commands_wait_for_a_server_that_takes_a_new_certificate(tmp_path, monkeypatch):
    made = make_deployment(tmp_path / "d", "127.0.0.1", [])
    made.restarting.touch()
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            made.restarting.unlink()

    def run(command, deployment):
        assert len(pauses) == 3
        return subprocess.CompletedProcess(command, 0, '{"success": true, "nodes": []}', "")

    monkeypatch.setattr(commands.time, "sleep", sleep)
    monkeypatch.setattr(commands, "_run", run)
    assert commands.ask(made, "supernode", "list")["nodes"] == []


def test_a_server_that_is_up_takes_a_new_certificate_when_no_run_is_going_on(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    made = make_deployment(tmp_path / "d", "127.0.0.1", ["basel", "bern"], port=port, days=10)
    monkeypatch.setattr(Link, "started", 0)
    for name, value in {"Program": Link, "LOOK": 0.0, "answers": lambda _: True, "register": lambda *_: []}.items():
        monkeypatch.setattr(server, name, value)
    said, statuses = [], iter(["running", "finished:completed"])
    seen = []

    def ask(deployment, *_):
        assert not deployment.restarting.exists()
        seen.append((next(statuses), Link.started))
        return {"runs": [{"status": "finished:failed"}, {"status": seen[-1][0]}]}

    def note(line):
        said.append(line)
        if line.startswith("Ready for"):
            if Link.started == 1:
                making.remove_node(made, "bern")
                making.renew(made, 90)
            else:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(server, "ask", ask)
    server.serve(made, note)
    assert seen == [("running", 1), ("finished:completed", 1)]  # it waited for the run
    assert Link.started == 2
    assert [line for line in said if line.startswith("Ready for")] == [
        "Ready for 2 nodes: basel, bern (Ctrl-C ends the server)",
        "Ready for 1 nodes: basel (Ctrl-C ends the server)",
    ]
    assert not made.restarting.exists()
    assert any("valid for 89 days" in line or "valid for 90 days" in line for line in said)


def test_a_certificate_that_is_unfit_is_not_taken(tmp_path, monkeypatch):
    made = make_deployment(tmp_path / "d", "127.0.0.1", [])
    monkeypatch.setattr(server, "ask", lambda *_: {"runs": []})
    before = made.certificate.read_bytes()
    assert not server._can_take_renewed(made, before)
    other = make_deployment(tmp_path / "other", "127.0.0.1", [])
    made.certificate.write_bytes(other.certificate.read_bytes())
    assert not server._can_take_renewed(made, before)
    making.renew(made, 30)
    assert server._can_take_renewed(made, before)
