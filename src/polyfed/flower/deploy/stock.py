"""Flower's own SuperNode in place of a warm node: `polyfed deploy node --stock`."""

from __future__ import annotations

import socket
import time

from polyfed.flower.deploy.commands import Note, environment, node_config, program, shown
from polyfed.flower.deploy.layout import NodeFolder, NodeWork
from polyfed.flower.deploy.processes import Program, Signals

TOUCH = 10.0  # seconds between two signs of life in the node's folder


def supernode_command(folder: NodeFolder, work: NodeWork, port: int) -> list[str]:
    """What Flower is started with; the port is for the node's own processes on this machine."""
    return [
        program("flower-supernode"),
        *("--superlink", work.superlink),
        *("--root-certificates", str(folder.authority)),
        *("--auth-supernode-private-key", str(folder.key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", node_config(work.config())),
    ]


def run_supernode(folder: NodeFolder, work: NodeWork, note: Note, signals: Signals) -> tuple[int, str, float]:
    """Start it and look after it until it ends or a signal comes: its code, what it said, and the seconds."""
    command = supernode_command(folder, work, _free_port())
    note(shown(command, folder.flower_home))
    node = Program(command, environment(folder.flower_home), folder.root, note)
    connected, touched = False, 0.0
    try:
        while (code := node.code) is None and not signals.sleep(0.5):
            connected = connected or any("SuperNode ID" in line for line in list(node.said))
            if connected and time.monotonic() - touched > TOUCH:
                folder.alive.touch()
                touched = time.monotonic()
    finally:
        node.stop()
    code = node.code if code is None else code
    if code == 0:  # it said goodbye, so it may come back at once
        folder.alive.unlink(missing_ok=True)
    said = [*node.said, "SuperNode ID"] if connected else node.said  # the line may have gone by
    return code or 0, "\n".join(said), node.seconds


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
