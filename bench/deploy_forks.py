"""Nodes as forks of this process: each a process of its own with its own connection and key, that shares torch in memory with
all others, and does its work itself. Fifty of them fit where fifty of `polyfed deploy node` with their workers would not."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from polyfed.flower import worker
from polyfed.flower.client_app import app
from polyfed.flower.deploy.layout import read_node
from polyfed.flower.deploy.node import prepare
from polyfed.flower.deploy.processes import Signals
from polyfed.flower.internals import FleetRequests
from polyfed.flower.warm import WarmNode
from polyfed.gp import compiled


class Inline:
    """A worker that is no process; nothing ends it but the end of its node."""

    def __init__(self, node: int, config: Mapping[str, Any]) -> None:
        self.node, self.config = node, dict(config)

    def answer(self, packed: bytes, seconds: float, leaving: Callable[[], bool]) -> bytes | None:
        return worker.answer(app, packed, self.node, self.config)

    def close(self) -> None:
        pass


def fork_node(folder: Path, data: Path, log: Path) -> int:
    """Start a node; the number of its process."""
    compiled.load()  # once, for all of them
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with log.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.setsid()
        _run(folder, data)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(folder: Path, data: Path) -> None:
    mine = prepare(read_node(folder), data, None, None, None)
    with Signals() as signals:
        requests = FleetRequests(mine.superlink, mine.authority, mine.key)
        try:
            node = WarmNode(requests, mine.alive, signals, lambda line: os.write(2, f"{line}\n".encode()) and None)
            node.run(lambda number: Inline(number, mine.config()))  # pyright: ignore[reportArgumentType]
        finally:
            requests.close()
