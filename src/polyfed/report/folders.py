"""Run folders, as far as pages need them: JSON and JSON lines, no model.

What the events of a run say is gathered one event at a time: the report and the live page read the same way. Curves keep means
over the clients only, so that a run with many clients and rounds stays small; the scores of each client are kept for the last
evaluation.

>>> history = History()
>>> history.add({"event": "start", "method": "local", "seed": 3, "clients": ["a", "b"], "tasks": {"pulse": "regression"}})
>>> scores = {"a": {"pulse": {"rmse": 1.0}}, "b": {"pulse": {"rmse": 2.0}}}
>>> history.add({"event": "evaluation", "round": 5, "part": "test", "model": "personal", "clients": scores})
>>> history.curve("pulse", "rmse", part="test")
{5: 1.5}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from polyfed.errors import DataError
from polyfed.folders.documents import read_content, read_document
from polyfed.folders.lines import TIMING_FILE, Event, parse_timing, read_events
from polyfed.folders.results_file import read_results
from polyfed.folders.schemas import RunDocument

Scores = Mapping[str, Mapping[str, Mapping[str, float | None]]]  # client → task → metric → value


class Round(NamedTuple):
    round: int
    n_sampled: int
    n_rejected: int
    used: bool
    bytes_down: int
    bytes_up: int
    dropped: str | None = None  # why what came out of it was not kept


class Rejection(NamedTuple):
    """An update that the server did not use, and why."""

    round: int
    client: str
    reason: str


@dataclass
class History:
    """Everything that pages show of a run's events."""

    kinds: dict[str, str] = field(default_factory=dict)  # task → kind
    clients: list[str] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    training: dict[str, dict[int, float]] = field(default_factory=dict)  # metric → round → mean over the clients
    last: dict[tuple[str, str], tuple[int, Scores]] = field(default_factory=dict)  # (model, part) → round, scores
    _curves: dict[tuple[str, str, str, str], dict[int, float]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take one more event that fits its schema; kinds of events that are not known here are passed over."""
        kind = event["event"]
        if kind == "start":
            self.kinds, self.clients = dict(event["tasks"]), list(event.get("clients", ()))
        elif kind == "round":
            number, rejected, sizes = event["round"], event["rejected"], (event["bytes_down"], event["bytes_up"])
            counts = len(event["sampled"]), len(rejected)
            self.rounds.append(Round(number, *counts, event["used"], *sizes, event.get("dropped")))
            self.rejections += [Rejection(number, client, reason) for client, reason in rejected.items()]
            for metric, mean in _means(event["metrics"].values()).items():
                self.training.setdefault(metric, {})[number] = mean
        elif kind == "evaluation":
            model, part, clients = event["model"], event["part"], event["clients"]
            self.last[model, part] = event["round"], clients
            for task in self.kinds:
                for metric, mean in _means(tasks[task] for tasks in clients.values() if task in tasks).items():
                    self._curves.setdefault((model, part, task, metric), {})[event["round"]] = mean

    def curve(self, task: str, metric: str, *, part: str, model: str = "personal") -> dict[int, float]:
        """Round → mean over the clients."""
        return self._curves.get((model, part, task, metric), {})

    def metrics(self, task: str) -> list[str]:
        """The metrics that were measured for a task, in the order in which they came."""
        return list(dict.fromkeys(metric for _, _, of, metric in self._curves if of == task))

    @property
    def part(self) -> str | None:
        """The rows that results are quoted on: those kept for testing, or for validation if there are none."""
        return next((part for part in ("test", "validation") if ("personal", part) in self.last), None)

    def final(self) -> Scores:
        """The scores of every client in the last evaluation; none if nothing was evaluated."""
        return self.last["personal", self.part][1] if self.part else {}

    @property
    def round(self) -> int:
        return self.rounds[-1].round if self.rounds else 0


def means_of(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Name → the mean of its values; None is a number that JSON cannot write, such as an endless loss."""
    values: dict[str, list[float]] = {}
    for name, value in pairs:
        if value is not None:
            values.setdefault(name, []).append(value)
    return {name: fmean(of_name) for name, of_name in values.items()}


def _means(of_clients: Iterable[Mapping[str, float | None]]) -> dict[str, float]:
    return means_of(pair for metrics in of_clients for pair in metrics.items())


@dataclass(frozen=True)
class RunFolder:
    """One run as it is on disk now, finished or not."""

    folder: Path
    described: dict[str, Any]  # run.json
    history: History
    timing: list[Event]
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
        return self.settings["rounds"]

    @property
    def seconds(self) -> float:
        """How long the rounds took, with their evaluations."""
        return sum(durations(self.timing))

    @property
    def warnings(self) -> list[str]:
        return [entry["warning"] for entry in self.timing if "warning" in entry]


def durations(timing: list[Event]) -> list[float]:
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
