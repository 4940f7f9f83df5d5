"""The process in which a warm node's work is done, and its two ends: `Worker` in the node, `work` in the process.

The process loads torch and the client app once and answers messages until its pipe is closed. The node can end it at any
time: what counts is on the disk, written whole.

    python -m polyfed.flower.worker DESCRIPTOR      started by polyfed deploy node, and of no use without it
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name

from flwr.app import Context, Message, RecordDict

from polyfed.flower import internals
from polyfed.flower.deploy.commands import Note, environment
from polyfed.flower.deploy.processes import Program

log = logging.getLogger("flwr")
APP = "polyfed.flower.client_app:app"  # a node runs this one, whatever app the server has
LOOK = 0.5  # seconds between two looks whether the node shall end

Config = dict[str, str | int | float]


class WorkLost(Exception):
    """There is no answer, and the process that was to give it has ended."""


class Worker:
    """Starts at once; what it says goes to `note`."""

    def __init__(self, node: int, config: Config, home: Path, note: Note) -> None:
        self._setup = {"node": node, "config": config, "app": APP}
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
            self._program = Program(command, environment(self._home), Path.cwd(), self._note, other.fileno())
        self._pipe, self._ready = Connection(mine.detach()), False
        self._pipe.send_bytes(json.dumps(self._setup).encode())


def work(pipe: Connection) -> None:
    """Read the node's number, config and app, say that all is loaded, then answer."""
    setup = json.loads(pipe.recv_bytes())
    app = resolve_name(setup["app"])
    pipe.send_bytes(b"ready")
    while True:
        pipe.send_bytes(answer(app, pipe.recv_bytes(), setup["node"], setup["config"]))


def answer(app: Callable[[Message, Context], Message], packed: bytes, node: int, config: Config) -> bytes:
    """One message, with nothing kept of those before it: a client's state is in its folder."""
    message = internals.from_bytes(packed)
    run = message.metadata.run_id
    internals.be(node, run)
    try:
        reply = app(message, Context(run_id=run, node_id=node, node_config=config, state=RecordDict(), run_config={}))
    except Exception as error:  # of the app: all that polyfed's own expects is answered there
        log.exception("polyfed: %s", error)
        reply = internals.failed(message, internals.RAISED, f"{type(error).__name__}; the log of that node says more")
    return internals.to_bytes(reply)


if __name__ == "__main__":
    try:
        work(Connection(int(sys.argv[1])))
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the node has left
        sys.exit(0)
