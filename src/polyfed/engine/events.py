"""What happened, as JSON lines. `events.jsonl` holds what a seed decides, so it is the same for every run of that seed,
also for one that was killed and resumed; when it happened is in `timing.jsonl`."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.lines import EVENTS_FILE, TIMING_FILE, content_until, parse_events
from polyfed.folders.schemas import LARGEST
from polyfed.folders.writing import append, cut, write

Event = dict[str, Any]  # its fields, by the kind in `event`: `folders.schemas.EVENTS`
OnEvent = Callable[[Event], object]


def ignore(event: Event) -> None:
    """The listener where there is none."""


class EventLog:
    """Events in memory and, if there is a folder, on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.trouble: DataError | None = None  # why those on disk cannot be read
        self._hold([], b"")

    @classmethod
    def restored(cls, folder: Path, size: int, sha256: str) -> EventLog:
        """The events of a folder as they were when they had this size and digest. Nothing on disk is changed."""
        log = cls(folder)
        try:
            content = content_until(folder / EVENTS_FILE, size, sha256)
            log._hold(list(parse_events(content, folder / EVENTS_FILE)), content)
        except DataError as error:
            log.trouble = error
        return log

    @property
    def events(self) -> list[Event]:
        if self.trouble is not None:
            raise self.trouble
        return self._events

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def add(self, event: Event) -> None:
        """One more event, on disk before this returns."""
        event = tidy(event)
        line = _line(event)
        if self.folder is not None:
            append(self.folder / EVENTS_FILE, line, safely=True)
        self.events.append(event)
        self._hash.update(line)
        self.size += len(line)

    def add_timing(self, **entry: object) -> None:
        """When and how long: not part of what must be the same at every run."""
        if self.folder is not None:
            append(self.folder / TIMING_FILE, _line({"time": round(time.time(), 3), **entry}))

    def rewrite(self, events: list[Event]) -> None:
        self._hold(list(events), b"".join(map(_line, events)))
        if self.folder is not None:
            write(self.folder / EVENTS_FILE, self.content())

    def content(self) -> bytes:
        return b"".join(map(_line, self.events))

    def cut(self) -> None:
        """Forget on disk what is not in memory: rounds that will be completed again. The folder's owner alone may."""
        assert self.folder is not None
        if self.trouble is not None:
            raise self.trouble
        path = self.folder / EVENTS_FILE
        if path.is_file() and path.stat().st_size > self.size:
            cut(path, self.size)

    def _hold(self, events: list[Event], content: bytes) -> None:
        self._events, self.size, self._hash = events, len(content), hashlib.sha256(content)


def tidy(value: Any) -> Any:
    """The same with None in place of numbers that JSON has no way to write, or that no sum could hold."""
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(item) for item in value]
    is_large = isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST)
    return None if is_large else value


def _line(event: Event) -> bytes:
    return json.dumps(event, allow_nan=False).encode() + b"\n"
