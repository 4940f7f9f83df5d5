"""What happened, as JSON lines. `events.jsonl` holds what a seed decides, so it is the same for every run of that seed,
also for one that was killed and resumed; when it happened is in `timing.jsonl`."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.files import write_whole


class EventLog:
    """Events in memory and, if there is a folder, on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.events = folder, list[dict[str, Any]]()
        self.size = 0  # bytes of events.jsonl

    def add(self, event: dict[str, Any]) -> None:
        """One more event, on disk before this returns."""
        event = tidy(event)
        self.events.append(event)
        if self.folder is not None:
            line = json.dumps(event, allow_nan=False).encode() + b"\n"
            with (self.folder / "events.jsonl").open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self.size += len(line)

    def add_timing(self, **entry: Any) -> None:
        """When and how long: not part of what must be the same at every run."""
        if self.folder is not None:
            with (self.folder / "timing.jsonl").open("a") as file:
                file.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")

    def rewrite(self, events: list[dict[str, Any]]) -> None:
        """These events in place of all."""
        self.events = list(events)
        if self.folder is not None:
            content = b"".join(json.dumps(event, allow_nan=False).encode() + b"\n" for event in events)
            write_whole(self.folder / "events.jsonl", content)
            self.size = len(content)

    def cut(self, size: int) -> None:
        """Forget what was written after the file had this many bytes: rounds that will be played again."""
        assert self.folder is not None
        path = self.folder / "events.jsonl"
        length = path.stat().st_size if path.is_file() else 0
        if length < size:
            raise DataError(
                f"has {length} bytes, but the checkpoint was written when it had {size}",
                where=str(path),
                remedy="restore the file, or start the run anew in another folder",
            )
        if length > size:
            with path.open("rb+") as file:
                file.truncate(size)
        self.events, self.size = list(read_lines(path)), size


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file; a last line that is still being written is left out."""
    if not path.is_file():
        return
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:
            raise DataError(
                "is not JSON", where=f"{path}, line {number}", remedy="restore the file or start the run anew"
            ) from None


def tidy(value: Any) -> Any:
    """The same with None in place of numbers that JSON has no way to write."""
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
