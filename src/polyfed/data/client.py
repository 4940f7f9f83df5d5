"""What a client holds once its table is coded: numbers alone, and private. Methods compute with this and nothing else.

>>> codec = LabelCodec.learn(Task("pulse"), [60.0, 80.0])
>>> data = ClientData(np.zeros((3, 2)), {"pulse": (np.array([0, 2]), np.array([-1.0, 1.0]))}, {"pulse": codec})
>>> data.n_labels, data.n_features, data.only("pulse").tasks
(2, 2, ('pulse',))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from polyfed.data.labels.codec import LabelCodec
from polyfed.data.task import Task


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows of one client (or of one part of them, such as its test rows)."""

    x: np.ndarray  # (inputs, features) float64, encoded and scaled
    # task → (positions in x, coded labels); a task may lack, and an input may have labels of some tasks only
    labels: Mapping[str, tuple[np.ndarray, np.ndarray]]
    # how the labels of every task of the federation are coded, those without labels here included
    codecs: Mapping[str, LabelCodec]
    # task → how much each of its labels counts, on average one; tasks whose labels count alike are not here
    weights: Mapping[str, np.ndarray] = field(default_factory=dict, kw_only=True)

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks of the federation, in its order."""
        return tuple(self.codecs)

    @property
    def n_features(self) -> int:
        return self.x.shape[1]

    @cached_property  # a round asks for them several times, of ten thousand clients
    def n_labels(self) -> int:
        """Labels of all tasks together."""
        return sum(self._counts.values())

    def counts(self) -> dict[str, int]:
        """Number of labels of every task; zero for a task that this client does not have."""
        return dict(self._counts)

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {task: len(self.labels[task][0]) if task in self.labels else 0 for task in self.codecs}

    def only(self, task: str) -> ClientData:
        """The same inputs with the labels of one task alone."""
        seen = {task: self.labels[task]} if task in self.labels else {}
        weights = {task: self.weights[task]} if task in self.weights else {}
        return replace(self, labels=seen, codecs={task: self.codecs[task]}, weights=weights)

    def weights_of(self, task: str) -> np.ndarray:
        """How much each label of a task counts."""
        return self.weights[task] if task in self.weights else np.ones(self.counts()[task])


@dataclass(frozen=True)
class FederationSpec:
    """What everyone in a federation knows once round 0 is over: tasks with their classes, features, members."""

    tasks: tuple[Task, ...]
    n_features: int
    clients: tuple[str, ...]
    codecs: Mapping[str, LabelCodec]

    def nothing(self) -> ClientData:
        return ClientData(np.empty((0, self.n_features)), {}, self.codecs)

    def only(self, task: str) -> FederationSpec:
        """The same federation with one task alone."""
        tasks = tuple(t for t in self.tasks if t.name == task)
        return replace(self, tasks=tasks, codecs={task: self.codecs[task]})
