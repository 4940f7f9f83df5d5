"""Run folders, as far as pages need them: JSON and JSON lines, no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
    rounds = [entry for entry in timing if entry.get("seconds") is not None]
    return [entry["seconds"] + entry.get("evaluation_seconds", 0.0) for entry in rounds]


def read_run(folder: Path) -> RunFolder:
    """The run in a folder; rejects a folder without one, and files that are damaged."""
    described = read_summary(folder)
    if described is None:
        raise DataError("there is no run.json", where=folder, remedy="give the folder of a run")
    history = History()
    for event in read_events(folder):
        history.add(event)
    path = folder / TIMING_FILE
    timing = list(parse_timing(read_content(path) if path.exists() else b"", path))
    results, trouble = None, "There is no results.json yet: it is written when a run ends."
    if (folder / "results.json").exists():
        try:
            results, trouble = read_results(folder), ""
        except DataError as error:  # a report is worth having without them
            trouble = f"The file results.json {error.what}; {error.remedy}."
    return RunFolder(folder, described, history, timing, results, trouble)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """`run.json`, or None if the run has not begun."""
    path = folder / "run.json"
    return read_document(path, RunDocument) if path.exists() else None


@dataclass(frozen=True, eq=False)
class Rows:
    """Every scored row of a task. `client` is the position in `clients`; `values` by name have one entry for each row."""

    clients: list[str]
    client: np.ndarray
    values: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.client)


def rows_of(predictions: Mapping[str, Any], task: str, names: tuple[str, ...]) -> Rows:
    """Predictions of results.json as columns, of one task and all clients; rows where a number is missing are left out.

    >>> of_a = {"y": [1.0, 2.0], "mean": [1.5, None]}
    >>> rows = rows_of({"a": {"pulse": of_a}, "b": {}}, "pulse", ("y", "mean"))
    >>> rows.clients, rows.values["mean"].tolist()
    (['a'], [1.5])
    """
    of_task = {client: of_client[task] for client, of_client in predictions.items() if task in of_client}
    found = {client: columns for client, columns in of_task.items() if all(columns.get(name) for name in names)}
    if not found:
        return Rows([], np.zeros(0, dtype=int), {name: np.zeros(0) for name in names})
    columns = {name: np.concatenate([np.asarray(c[name], dtype=np.float64) for c in found.values()]) for name in names}
    client = np.repeat(np.arange(len(found)), [len(one[names[0]]) for one in found.values()])
    whole = np.all([np.isfinite(column.reshape(len(client), -1)).all(axis=1) for column in columns.values()], axis=0)
    return Rows(list(found), client[whole], {name: column[whole] for name, column in columns.items()})
