"""Run folders, as far as pages need them: JSON and JSON lines, no model.

run = read_run(Path("runs/a"))
run.method, run.seed, run.history.round, run.results
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.documents import read_content, read_document
from polyfed.folders.lines import TIMING_FILE, parse_timing, read_events
from polyfed.folders.results_file import read_results
from polyfed.folders.schemas import RunDocument
from polyfed.report.history import History


@dataclass(frozen=True)
class RunFolder:
    """One run as it is on disk now, finished or not."""

    folder: Path
    described: dict[str, Any]  # run.json
    history: History
    timing: list[dict[str, Any]]
    results: dict[str, Any] | None
    trouble: str  # why there are no results

    @property
    def method(self) -> str:
        return self.described["method"]

    @property
    def settings(self) -> dict[str, Any]:
        return self.described["settings"]

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    @property
    def n_rounds(self) -> int:
        """How many rounds are wanted in all."""
        return self.settings["rounds"]

    @property
    def seconds(self) -> float:
        """How long the rounds took, with their evaluations."""
        return sum(durations(self.timing))

    @property
    def warnings(self) -> list[str]:
        return [entry["warning"] for entry in self.timing if "warning" in entry]


def durations(timing: list[dict[str, Any]]) -> list[float]:
    """Seconds of each round, with its evaluation."""
    return [
        entry["seconds"] + entry.get("evaluation_seconds", 0.0) for entry in timing if entry.get("seconds") is not None
    ]


def read_run(folder: Path) -> RunFolder:
    """The run in a folder; rejects a folder without one, and files that are damaged."""
    described = read_summary(folder)
    if described is None:
        raise DataError("there is no run.json", where=str(folder), remedy="give the folder of a run")
    history = History()
    for event in read_events(folder):
        history.add(event)
    path = folder / TIMING_FILE
    timing = list(parse_timing(read_content(path) if path.exists() else b"", path))
    results, trouble = _read_results(folder)
    return RunFolder(folder, described, history, timing, results, trouble)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """`run.json`, or None if the run has not begun."""
    path = folder / "run.json"
    return read_document(path, RunDocument) if path.exists() else None


def _read_results(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """A report is worth having without them, so whatever is wrong becomes a sentence in it."""
    if not (folder / "results.json").exists():
        return None, "There is no results.json yet: it is written when a run ends."
    try:
        return read_results(folder), ""
    except DataError as error:
        return None, f"The file results.json {error.what}; {error.remedy}."
