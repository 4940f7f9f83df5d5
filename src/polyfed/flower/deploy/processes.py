"""A program of Flower that runs beside this one: what it says is passed on, and it ends when we end."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType
from typing import Any

from polyfed.errors import UsageError

LARGEST, KEPT = 5_000_000, 5  # bytes of a log, and older files beside it
GRACE = 25.0  # seconds to end in order; Flower itself takes up to ten


class Program:
    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, echo: Callable[[str], None], *descriptors: int
    ) -> None:
        self.said = deque[str](maxlen=200)  # the last lines, without colours
        self._echo = echo
        self._process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone, and we pass it on
            pass_fds=descriptors,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(timeout=5)  # its own children may keep the pipe open
        return code

    def stop(self) -> None:
        """End it in order, and by force if that takes too long."""
        if self._process.poll() is None:
            self._process.terminate()
            if self.ended(GRACE) is None:
                self.kill()
        self._reader.join(timeout=5)

    def kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: nobody else is in it
            self._process.wait()
        self._reader.join(timeout=5)

    def ended(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for raw in stream:
                line = re.sub(r"\x1b\[[0-9;]*m", "", raw.decode(errors="replace")).rstrip()
                self.said.append(line)
                if line:
                    self._echo(line)


class Signals:
    """While it is entered, Ctrl-C and SIGTERM set `received` instead of ending this process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._woken = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def sleep(self, seconds: float) -> bool:
        """Wait, and say whether a signal came."""
        end = time.monotonic() + seconds
        while self.received is None and (left := end - time.monotonic()) > 0:
            self._woken.wait(min(left, 0.5))  # a wait that is not short is not interrupted everywhere
        return self.received is not None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._woken.set()


def _end_with_parent() -> None:
    """Ask Linux for a SIGTERM when the parent is gone, even if that was killed: an orphan would keep the port and the key."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def rotating(path: Path) -> Callable[[str], None]:
    """A log that does not fill the disk: lines with their time; when the file is full it is `path.1`, and a new one begins."""
    log = logging.getLogger(f"polyfed.deploy.{path.absolute()}")
    log.propagate = False
    log.setLevel(logging.INFO)
    if not log.handlers:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
        except OSError as error:
            what = f"cannot be written: {error.strerror}"
            raise UsageError(what, where=path, remedy="choose another file for --log") from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
    return log.info
