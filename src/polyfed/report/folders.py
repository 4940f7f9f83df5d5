"""Run folders, as far as pages need them: JSON and JSON lines, no model.

run = read_run(Path("runs/a"))
run.method, run.seed, run.history.round, run.results
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.report.history import History

FORMAT = 1


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
        return sum(entry["seconds"] + entry["evaluation_seconds"] for entry in self.timing if "seconds" in entry)

    @property
    def warnings(self) -> list[str]:
        return [entry["warning"] for entry in self.timing if "warning" in entry]


def read_run(folder: Path) -> RunFolder:
    """The run in a folder; refuses a folder without one, and files that are damaged."""
    described = read_description(folder)
    if described is None:
        raise DataError("there is no run.json", where=str(folder), remedy="give the folder of a run")
    history = History()
    for event in parse_lines(_content(folder / "events.jsonl"), folder / "events.jsonl"):
        history.add(event)
    timing = list(parse_lines(_content(folder / "timing.jsonl"), folder / "timing.jsonl"))
    results, trouble = _read_results(folder)
    return RunFolder(folder, described, history, timing, results, trouble)


def read_description(folder: Path) -> dict[str, Any] | None:
    """`run.json`, or None if the run has not begun."""
    path = folder / "run.json"
    if not path.is_file():
        return None
    try:
        described = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy="start the run anew") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        found = described.get("format") if isinstance(described, dict) else None
        remedy = "read it with the polyfed that wrote it"
        raise DataError(f"format {found!r} is not {FORMAT}", where=str(path), remedy=remedy)
    if missing := [name for name in ("method", "options", "settings") if name not in described]:
        raise DataError(f"cannot be read (no {missing[0]!r})", where=str(path), remedy="start the run anew")
    return described


def parse_lines(content: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """JSON lines; a last line that is still being written is left out."""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            yield json.loads(line)
        except ValueError:
            remedy = "restore the file or start the run anew"
            raise DataError("is not JSON", where=f"{path}, line {number}", remedy=remedy) from None


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _read_results(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """A report is worth having without them, so whatever is wrong becomes a sentence in it."""
    path = folder / "results.json"
    if not path.is_file():
        return None, "There is no results.json yet: it is written when a run ends."
    try:
        results = json.loads(path.read_bytes())
    except ValueError:
        return None, "The file results.json is damaged; resume the run to have it written anew."
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        return None, "The file results.json was written by another version of polyfed."
    return results, ""
