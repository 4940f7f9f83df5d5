"""What is known of a run at this moment: where it is, whether it still moves, when it will end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.lines import EVENTS_FILE, TIMING_FILE, parse_events, parse_timing
from polyfed.report.folders import durations, read_summary
from polyfed.report.history import History

QUIET = 30.0  # seconds without an event after which a run counts as stopped ...
PATIENCE = 5  # ... or so many of its own rounds, if these take longer
RECENT = 20  # rounds by which the time that is left is judged


@dataclass(frozen=True)
class Look:
    """One look at a run."""

    state: str  # "waiting", "running", "stopped" or "finished"
    method: str
    seed: int | None
    n_rounds: int  # wanted in all
    history: History
    seconds_left: float | None  # None if nothing is known of it
    warnings: list[str]


class Tail:
    """A file of JSON lines that someone else writes, read on from where one was.

    A run that is resumed cuts its events back to its last checkpoint and may write as much again before the next look, so
    the size alone does not tell; what was read last must still stand where it stood.
    """

    def __init__(self, path: Path, parse: Callable[[bytes, Path, int], Iterator[dict[str, Any]]]) -> None:
        self.path, self._parse = path, parse
        self._fresh = False  # what came before is to be forgotten, which nobody has heard of yet
        self._begin()

    def _begin(self) -> None:
        self.offset, self.n_lines, self.last_line = 0, 0, b""

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether to forget what came before, and the whole lines that are new."""
        try:
            fresh, content = self._content()
        except FileNotFoundError:
            fresh, content = self.offset > 0, b""
            self._begin()
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", where=self.path, remedy="restore it") from error
        self._fresh |= fresh  # a line that cannot be read must not make it forgotten
        content = content[: content.rfind(b"\n") + 1]  # the rest is still being written
        lines = list(self._parse(content, self.path, self.n_lines + 1))
        if content:
            self.offset += len(content)
            self.n_lines += content.count(b"\n")
            self.last_line = content[content.rfind(b"\n", 0, -1) + 1 :]
        fresh, self._fresh = self._fresh, False
        return fresh, lines

    def _content(self) -> tuple[bool, bytes]:
        if self.path.exists() and not self.path.is_file():
            raise DataError("is not a file", where=self.path, remedy="restore it")
        with self.path.open("rb") as file:
            file.seek(self.offset - len(self.last_line))
            fresh = file.read(len(self.last_line)) != self.last_line
            if fresh:
                self._begin()
            file.seek(self.offset)
            return fresh, file.read()


class Watcher:
    """Reads on in a run folder at each look; the folder need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events, self._timing = Tail(folder / EVENTS_FILE, parse_events), Tail(folder / TIMING_FILE, parse_timing)
        self._history, self._times = History(), list[dict[str, Any]]()

    def look(self) -> Look:
        """Read what is new."""
        described = read_summary(self.folder)
        fresh, events = self._events.read()
        if fresh:
            self._history = History()
        for event in events:
            self._history.add(event)
        fresh, times = self._timing.read()
        self._times = times if fresh else self._times + times
        warnings = [entry["warning"] for entry in self._times if "warning" in entry]
        if described is None:
            return Look("waiting", "", None, 0, self._history, None, warnings)
        n_rounds, seed = described["settings"]["rounds"], described["settings"]["seed"]
        recent = durations(self._times)[-RECENT:]
        state = self._state(n_rounds, recent)
        left = fmean(recent) * (n_rounds - self._history.round) if recent and state == "running" else None
        return Look(state, described["method"], seed, n_rounds, self._history, left, warnings)

    def _state(self, n_rounds: int, recent: list[float]) -> str:
        if self._history.round >= n_rounds:
            return "finished"
        files = (self.folder / name for name in (EVENTS_FILE, TIMING_FILE, "run.json"))
        silence = time.time() - max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
        return "stopped" if silence > max(QUIET, PATIENCE * max(recent, default=0.0)) else "running"
