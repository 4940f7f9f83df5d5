"""What is known of a run at this moment: where it is, whether it still moves, when it will end.

watcher = Watcher(Path("runs/a"))
watcher.look().state             "waiting", "running", "stopped" or "finished"
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from polyfed.folders.lines import EVENTS_FILE, TIMING_FILE, parse_events, parse_timing
from polyfed.report.folders import durations, read_summary
from polyfed.report.history import History
from polyfed.report.live.tail import Tail

QUIET = 30.0  # seconds without an event after which a run counts as stopped ...
PATIENCE = 5  # ... or so many of its own rounds, if these take longer
RECENT = 20  # rounds by which the time that is left is judged


@dataclass(frozen=True)
class Look:
    """One look at a run."""

    state: str
    method: str
    seed: int | None
    n_rounds: int  # wanted in all
    history: History
    seconds_left: float | None  # None if nothing is known of it
    warnings: list[str]


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
        settings = {} if described is None else described["settings"]
        n_rounds = settings.get("rounds", 0)
        state = "waiting" if described is None else self._state(n_rounds)
        return Look(
            state=state,
            method="" if described is None else described["method"],
            seed=settings.get("seed"),
            n_rounds=n_rounds,
            history=self._history,
            seconds_left=self._seconds_left(n_rounds) if state == "running" else None,
            warnings=[entry["warning"] for entry in self._times if "warning" in entry],
        )

    def _state(self, n_rounds: int) -> str:
        if self._history.round >= n_rounds:
            return "finished"
        silence = time.time() - self._last_change()
        return "stopped" if silence > max(QUIET, PATIENCE * max(self._durations(), default=0.0)) else "running"

    def _last_change(self) -> float:
        files = (self.folder / name for name in ("events.jsonl", "timing.jsonl", "run.json"))
        return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)

    def _durations(self) -> list[float]:
        """Seconds of the last rounds, with their evaluations."""
        return durations(self._times)[-RECENT:]

    def _seconds_left(self, n_rounds: int) -> float | None:
        durations = self._durations()
        return fmean(durations) * (n_rounds - self._history.round) if durations else None
