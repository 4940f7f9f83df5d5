"""The live page's server in a thread of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Event, Thread

from polyfed.report import serve


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of the page, while it is there."""
    ready: Queue[str] = Queue()
    stop = Event()
    thread = Thread(target=serve, args=(folder, port), kwargs={"on_ready": ready.put, "stop_when": stop.is_set})
    thread.start()
    try:
        yield ready.get(timeout=10)
    finally:
        stop.set()
        thread.join(timeout=10)
    assert not thread.is_alive(), "the server ends when it is told to"
