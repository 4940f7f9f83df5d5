"""Each task by itself: one run of a method for every task, side by side, with nothing shared between the tasks.

Names of states and updates carry the position of their task, `0/kernels.0.log_phi1`; positions, because a task may have
any name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from polyfed.data import ClientData, FederationSpec
from polyfed.methods.base import ClientResult, Job, Method, Outlook, Predictor
from polyfed.methods.messages import ClientUpdate, State
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

_parts: WeakKeyDictionary[ClientData, dict[str, ClientData]] = WeakKeyDictionary()


def part_of(data: ClientData, task: str) -> ClientData:
    """One task of a client's data; always the same object, so that what was prepared for it is found again."""
    return _parts.setdefault(data, {}).setdefault(task, data.only(task))


class SeparateTasks(Method):
    """Runs `single` for each task. A client without labels of a task has no say in that task's run."""

    @property
    @abstractmethod
    def single(self) -> Method:
        """The method that serves one task."""

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        names = [task.name for task in spec.tasks]
        return _joined([self.single.init(spec.only(task), _own(stream, task)) for task in names])

    def start(self, data: ClientData, stream: Stream) -> State:
        return _joined([self.single.start(part_of(data, task), _own(stream, task)) for task in data.tasks])

    @property
    def needs_last_round(self) -> bool:
        return self.single.needs_last_round

    def begin_round(self, server: State, rounds_left: int) -> State:
        return _joined([self.single.begin_round(part, rounds_left) for part in _apart(server)])

    def broadcast(self, server: State, client: str) -> State:
        return _joined([self.single.broadcast(part, client) for part in _apart(server)])

    def prediction_state(self, server: State, client: str) -> State:
        return _joined([self.single.prediction_state(part, client) for part in _apart(server)])

    def template(self, server: State) -> ClientUpdate:
        return _joined_updates([self.single.template(part) for part in _apart(server)])

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        (outcome,) = self._many([Job("", state, message, data, stream)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        return self._many(jobs)

    def _many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        by_task: list[list[ClientResult]] = []
        states, messages = [_apart(job.state) for job in jobs], [_apart(job.message) for job in jobs]
        for i, task in enumerate(jobs[0].data.tasks if jobs else ()):
            single = [
                Job(job.client, _at(state, i), _at(message, i), part_of(job.data, task), _own(job.stream, task))
                for job, state, message in zip(jobs, states, messages, strict=True)
            ]
            by_task.append(self.single.local_many(single))
        outcomes: list[ClientResult] = []
        for of_client in zip(*by_task, strict=True):
            failed = next((outcome for outcome in of_client if isinstance(outcome, Exception)), None)
            if failed is not None:
                outcomes.append(failed)
                continue
            done = [outcome for outcome in of_client if not isinstance(outcome, Exception)]
            outcomes.append((_joined([state for state, _ in done]), _joined_updates([update for _, update in done])))
        return outcomes

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        pairs = zip(update.counts, _apart(server), _apart_update(update), strict=True)
        reasons = (self.single.objection(part, one) for task, part, one in pairs if update.counts[task] > 0)
        return next((reason for reason in reasons if reason), None)

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        position, _, rest = name.partition("/")
        return self.single.counted_tasks(_apart(server)[int(position)], rest)

    def is_evidence(self, name: str) -> bool:
        return self.single.is_evidence(name.partition("/")[2])

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        tasks = list(next(iter(updates.values())).counts)
        apart = {client: _apart_update(update) for client, update in updates.items()}
        parts = []
        for i, (task, part) in enumerate(zip(tasks, _apart(server), strict=True)):
            owners = {client: update[i] for client, update in apart.items() if update[i].counts[task] > 0}
            parts.append(self.single.aggregate(part, owners) if owners else part)
        return _joined(parts)

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        server_parts = _apart(server)
        client_parts = [None] * len(server_parts) if state is None else _apart(state)
        predict = [
            self.single.predictor(part, _at(client_parts, i), part_of(data, task))
            for i, (task, part) in enumerate(zip(data.tasks, server_parts, strict=True))
        ]

        def all_tasks(x: np.ndarray) -> Predictions:
            return Predictions({task: one(x)[task] for task, one in zip(data.tasks, predict, strict=True)})

        return all_tasks

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        pairs = zip(data.tasks, _apart(server), strict=True)
        return _joined([self.single.join(part, part_of(data, task), _own(stream, task)) for task, part in pairs])

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        parts, own = _apart(server), _apart(state or {})
        ahead = [
            self.single.outlook(part, _at(own, i), part_of(data, task))
            for i, (task, part) in enumerate(zip(data.tasks, parts, strict=True))
        ]
        return sum(ahead, Outlook())

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """The tasks one after the other; there is nothing between them."""
        parts = [
            self.single.explain(part, part_of(data, task))
            for task, part in zip(data.tasks, _apart(server), strict=True)
        ]
        scales = [
            {**one, "task": t} for t, p in zip(data.tasks, parts, strict=True) for one in p.get("length_scales", [])
        ]
        noise = {task: value for part in parts for task, value in part.get("noise", {}).items()}
        return {"task_correlation": None, "length_scales": scales, "noise": noise}


def _own(stream: Stream, task: str) -> Stream:
    return replace(stream, purpose=f"{stream.purpose} {task}")


def _joined(parts: Sequence[State]) -> State:
    return {f"{i}/{name}": value for i, part in enumerate(parts) for name, value in part.items()}


def _apart(state: State) -> list[State]:
    parts: dict[int, State] = {}
    for name, value in state.items():
        position, _, rest = name.partition("/")
        parts.setdefault(int(position), {})[rest] = value
    return [parts.get(i, {}) for i in range(max(parts, default=-1) + 1)]


def _at(parts: Sequence[State | None], i: int) -> State:
    """The state of task i; empty where a method keeps or sends nothing."""
    return (parts[i] if i < len(parts) else {}) or {}


def _joined_updates(parts: Sequence[ClientUpdate]) -> ClientUpdate:
    return ClientUpdate(
        _joined([part.arrays for part in parts]),
        {f"{i}/{name}": pair for i, part in enumerate(parts) for name, pair in part.pooled.items()},
        sum(part.weight for part in parts),
        {task: count for part in parts for task, count in part.counts.items()},
        # Bounds of independent tasks add up.
        {name: sum(part.metrics[name] for part in parts) for name in parts[0].metrics},
    )


def _apart_update(update: ClientUpdate) -> list[ClientUpdate]:
    arrays, pooled = _apart(update.arrays), [{} for _ in update.counts]
    for name, pair in update.pooled.items():
        position, _, rest = name.partition("/")
        pooled[int(position)][rest] = pair
    return [
        ClientUpdate(_at(arrays, i), pooled[i], float(count), {task: count}, update.metrics)
        for i, (task, count) in enumerate(update.counts.items())
    ]
