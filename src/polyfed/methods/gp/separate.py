"""Each task by itself: one run of a method for every task, side by side, with nothing shared between the tasks.

Names of states and updates carry the position of their task, `0/kernels.0.log_phi1`; positions, because a task may have
any name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from polyfed.data import ClientData, FederationSpec
from polyfed.methods.base import ClientResult, Explanation, Job, Method, Outlook, Predictor
from polyfed.methods.messages import ClientUpdate, State
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

Value = TypeVar("Value")
_parts: WeakKeyDictionary[ClientData, dict[str, ClientData]] = WeakKeyDictionary()


def part_of(data: ClientData, task: str) -> ClientData:
    """One task of a client's data; always the same object, so that what was prepared for it is found again."""
    return _parts.setdefault(data, {}).setdefault(task, data.only(task))


class SeparateTasks(Method):
    """Runs `single` for each task. A client without labels of a task has no say in that task's run.

    Names of states and updates carry the position of their task, `0/kernels.0.log_phi1`; a task may have any name.
    """

    @property
    @abstractmethod
    def single(self) -> Method:
        """The method that serves one task."""

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        return _joined([self.single.init(spec.only(task.name), _own(stream, task.name)) for task in spec.tasks])

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
        (outcome,) = self.local_many([Job("", state, message, data, stream)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        by_task: list[list[ClientResult]] = []
        states, messages = [_apart(job.state) for job in jobs], [_apart(job.message) for job in jobs]
        for i, task in enumerate(jobs[0].data.tasks if jobs else ()):
            single = [
                Job(job.client, _at(state, i), _at(message, i), part_of(job.data, task), _own(job.stream, task))
                for job, state, message in zip(jobs, states, messages, strict=True)
            ]
            by_task.append(self.single.local_many(single))
        return [_joined_results(of_client) for of_client in zip(*by_task, strict=True)]

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
        apart, parts = {client: _apart_update(update) for client, update in updates.items()}, []
        for i, part in enumerate(_apart(server)):
            owners = {client: each[i] for client, each in apart.items() if any(each[i].counts.values())}
            parts.append(self.single.aggregate(part, owners) if owners else part)
        return _joined(parts)

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        own = [None] * len(data.tasks) if state is None else _apart(state)
        predict = [self.single.predictor(part, _at(own, i), one) for i, (part, one) in enumerate(_each(server, data))]

        def all_tasks(x: np.ndarray) -> Predictions:
            return Predictions({task: one(x)[task] for task, one in zip(data.tasks, predict, strict=True)})

        return all_tasks

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        pairs = zip(data.tasks, _each(server, data), strict=True)
        return _joined([self.single.join(*each, _own(stream, task)) for task, each in pairs])

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        own, each = _apart(state or {}), _each(server, data)
        return sum((self.single.outlook(part, _at(own, i), one) for i, (part, one) in enumerate(each)), Outlook())

    def explain(self, server: State, data: ClientData) -> Explanation:
        """The tasks one after the other; there is nothing between them."""
        found = dict(zip(data.tasks, (self.single.explain(*each) for each in _each(server, data)), strict=True))
        return {
            "task_correlation": None,
            "length_scales": [{**one, "task": t} for t, of in found.items() for one in of.get("length_scales", [])],
            "noise": {task: value for of in found.values() for task, value in of.get("noise", {}).items()},
        }


def _own(stream: Stream, task: str) -> Stream:
    return replace(stream, purpose=f"{stream.purpose} {task}")


def _each(server: State, data: ClientData) -> list[tuple[State, ClientData]]:
    """Task by task."""
    return [(part, part_of(data, task)) for task, part in zip(data.tasks, _apart(server), strict=True)]


def _joined(parts: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    return {f"{i}/{name}": value for i, part in enumerate(parts) for name, value in part.items()}


def _apart(joined: Mapping[str, Value]) -> list[dict[str, Value]]:
    parts: dict[int, dict[str, Value]] = {}
    for name, value in joined.items():
        position, _, rest = name.partition("/")
        parts.setdefault(int(position), {})[rest] = value
    return [parts.get(i, {}) for i in range(max(parts, default=-1) + 1)]


def _at(parts: Sequence[dict[str, Value] | None], i: int) -> dict[str, Value]:
    """What is of task i; empty where a method keeps or sends nothing."""
    return (parts[i] if i < len(parts) else {}) or {}


def _joined_results(results: Sequence[ClientResult]) -> ClientResult:
    """The first error, if there is one."""
    done: list[tuple[State, ClientUpdate]] = []
    for one in results:
        if isinstance(one, Exception):
            return one
        done.append(one)
    return _joined([state for state, _ in done]), _joined_updates([update for _, update in done])


def _joined_updates(parts: Sequence[ClientUpdate]) -> ClientUpdate:
    return ClientUpdate(
        _joined([part.arrays for part in parts]),
        _joined([part.pooled for part in parts]),
        sum(part.weight for part in parts),
        {task: count for part in parts for task, count in part.counts.items()},
        # Bounds of independent tasks add up.
        {name: sum(part.metrics[name] for part in parts) for name in parts[0].metrics},
    )


def _apart_update(update: ClientUpdate) -> list[ClientUpdate]:
    arrays, pooled = _apart(update.arrays), _apart(update.pooled)
    return [
        ClientUpdate(_at(arrays, i), _at(pooled, i), float(count), {task: count}, update.metrics)
        for i, (task, count) in enumerate(update.counts.items())
    ]
