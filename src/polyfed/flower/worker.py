"""The process in which a node's work is done: it loads torch and the client app once and answers messages until its pipe
is closed. Its parent (`deploy.worker`) can end it at any time; what counts is on the disk, written whole.

    python -m polyfed.flower.worker DESCRIPTOR      started by polyfed deploy node, and of no use without it
"""

from __future__ import annotations

import json
import logging
import sys
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any

from flwr.app import Context, RecordDict

from polyfed.flower import internals

log = logging.getLogger("flwr")


def work(pipe: Connection) -> None:
    """Read the node's number, config and app, say that all is loaded, then answer."""
    setup = json.loads(pipe.recv_bytes())
    app = resolve_name(setup["app"])
    pipe.send_bytes(b"ready")
    while True:
        packed = pipe.recv_bytes()
        pipe.send_bytes(answer(app, packed, setup["node"], setup["config"]))


def answer(app: Any, packed: bytes, node: int, config: dict[str, Any]) -> bytes:
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
