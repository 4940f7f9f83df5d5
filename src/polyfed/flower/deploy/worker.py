"""The other end of `polyfed.flower.worker`: a process that is kept warm, and ended when a message's time is over."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from polyfed.flower.deploy.commands import Note, environment
from polyfed.flower.deploy.processes import Program

APP = "polyfed.flower.client_app:app"  # a node runs this one, whatever app the server has
LOOK = 0.5  # seconds between two looks whether the node shall end


class WorkLost(Exception):
    """There is no answer, and the process that was to give it has ended."""


class Worker:
    """Starts at once; what it says goes to `note`."""

    def __init__(self, node: int, config: Mapping[str, Any], home: Path, note: Note) -> None:
        self._setup = {"node": node, "config": dict(config), "app": APP}
        self._home, self._note = home, note
        self._start()

    def answer(self, packed: bytes, seconds: float, leaving: Callable[[], bool]) -> bytes | None:
        """The reply to a message; None if the node shall end. A worker that takes too long, or dies, is started anew."""
        if self._program.code is not None:
            self._start()
        end = time.monotonic() + seconds
        try:
            if not self._ready and self._received(end, leaving) is None:
                return None
            self._ready = True
            self._pipe.send_bytes(packed)
            return self._received(end, leaving)
        except TimeoutError:
            raise self._lost(f"the work was not done within {seconds:.0f} s, and was ended") from None
        except (EOFError, OSError):
            raise self._lost(f"the process that did the work ended with code {self._program.ended(1.0)}") from None

    def close(self) -> None:
        """End it; the pipe is closed first, and whoever only waits for a message leaves by himself."""
        self._pipe.close()
        self._program.kill()

    def _received(self, end: float, leaving: Callable[[], bool]) -> bytes | None:
        while not self._pipe.poll(min(LOOK, max(0.0, end - time.monotonic()))):
            if leaving():
                return None
            if time.monotonic() >= end:
                raise TimeoutError
        return self._pipe.recv_bytes()

    def _lost(self, what: str) -> WorkLost:
        self.close()
        self._start()
        return WorkLost(what)

    def _start(self) -> None:
        mine, other = socket.socketpair()
        with other:
            command = [sys.executable, "-m", "polyfed.flower.worker", str(other.fileno())]
            self._program = Program(
                command, environment(self._home), Path.cwd(), self._note, descriptors=(other.fileno(),)
            )
        self._pipe, self._ready = Connection(mine.detach()), False
        self._pipe.send_bytes(json.dumps(self._setup).encode())
