"""What the events of a run say, gathered one event at a time: the report and the live page read the same way.

Curves keep means over the clients only, so that a run with many clients and rounds stays small; the scores of each
client are kept for the last evaluation.

>>> history = History()
>>> history.add({"event": "start", "method": "local", "seed": 3, "clients": ["a", "b"], "tasks": {"pulse": "regression"}})
>>> scores = {"a": {"pulse": {"rmse": 1.0}}, "b": {"pulse": {"rmse": 2.0}}}
>>> history.add({"event": "evaluation", "round": 5, "part": "test", "model": "personal", "clients": scores})
>>> history.curve("pulse", "rmse", part="test")
{5: 1.5}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

Scores = Mapping[str, Mapping[str, Mapping[str, float | None]]]  # client → task → metric → value


class Round(NamedTuple):
    """One round in numbers."""

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

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one more event that fits its schema; kinds of events that are not known here are passed over."""
        kind = event["event"]
        if kind == "start":
            self.kinds, self.clients = dict(event["tasks"]), list(event.get("clients", ()))
        elif kind == "round":
            self._add_round(event)
        elif kind == "evaluation":
            self._add_evaluation(event)

    def _add_round(self, event: Mapping[str, Any]) -> None:
        number, rejected = event["round"], event["rejected"]
        sizes = event["bytes_down"], event["bytes_up"]
        counts = len(event["sampled"]), len(rejected)
        self.rounds.append(Round(number, *counts, event["used"], *sizes, event.get("dropped")))
        self.rejections += [Rejection(number, client, reason) for client, reason in rejected.items()]
        for metric, mean in _means(event["metrics"]).items():
            self.training.setdefault(metric, {})[number] = mean

    def _add_evaluation(self, event: Mapping[str, Any]) -> None:
        model, part, clients = event["model"], event["part"], event["clients"]
        self.last[model, part] = event["round"], clients
        for task in self.kinds:
            of_task = {client: tasks[task] for client, tasks in clients.items() if task in tasks}
            for metric, mean in _means(of_task).items():
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


def _means(of_clients: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for metrics in of_clients.values():
        for metric, value in metrics.items():
            if value is not None:  # a number that JSON cannot write, such as an endless loss
                values.setdefault(metric, []).append(value)
    return {metric: fmean(of_metric) for metric, of_metric in values.items()}
