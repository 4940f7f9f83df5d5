"""Round 0, the client's part: what a client tells the server about its data before any learning.

Only this leaves the client: names and kinds of columns, categories and classes that occur, and (for federated scaling)
count, mean and spread of each column and target, or (for scaling "targets") of each target. All but the classes come
from training rows alone; which classes exist is part of the task and no statistic.

>>> from polyfed.data.raw import read_client
>>> raw = read_client("basel", ([[1.0], [3.0], [9.0]], {"pulse": [60, 80, 70]}), [Task("pulse")])
>>> note = describe([Task("pulse")], raw, Division(np.array([0, 1]), np.array([]), np.array([2])))
>>> note.moments.mean, note.targets["pulse"].mean
(array([2.]), array([70.]))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.data.raw import RawClient
from polyfed.data.raw_features import RawFeatures
from polyfed.data.scaling import Moments
from polyfed.data.splits import Division
from polyfed.data.task import Task


@dataclass(frozen=True, eq=False)
class Description:
    """What one client says of its data.

    Attributes:
        columns: the features, in the client's order.
        kinds: of each column "number", "text", or "empty" if the client has no value in it.
        gaps: whether values of each column are missing.
        categories: text column → the texts that occur, sorted.
        classes: class task without given classes → the labels that occur.
        moments: of the columns that are not text, in their order; None unless scaling is federated.
        targets: regression, robust or count task → moments of its labels; empty unless scaling is federated or targets.
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    gaps: tuple[bool, ...]
    categories: Mapping[str, tuple[str, ...]]
    classes: Mapping[str, tuple[Any, ...]]
    moments: Moments | None
    targets: Mapping[str, Moments]

    @property
    def number_columns(self) -> tuple[str, ...]:
        """The columns that `moments` speaks of."""
        return tuple(name for name, kind in zip(self.columns, self.kinds, strict=True) if kind != "text")

    @property
    def n_bytes(self) -> int:
        """The size of the message."""
        return len(json.dumps(self.to_dict(), separators=(",", ":")).encode())

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            "columns": list(self.columns),
            "kinds": list(self.kinds),
            "gaps": list(self.gaps),
            "categories": {name: list(texts) for name, texts in self.categories.items()},
            "classes": {task: list(labels) for task, labels in self.classes.items()},
            "moments": None if self.moments is None else self.moments.to_dict(),
            "targets": {task: moments.to_dict() for task, moments in self.targets.items()},
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Description:
        """The description that `to_dict` described."""
        moments = described["moments"]
        return cls(
            columns=tuple(described["columns"]),
            kinds=tuple(described["kinds"]),
            gaps=tuple(described["gaps"]),
            categories={name: tuple(texts) for name, texts in described["categories"].items()},
            classes={task: tuple(labels) for task, labels in described["classes"].items()},
            moments=None if moments is None else Moments.from_dict(moments),
            targets={task: Moments.from_dict(part) for task, part in described["targets"].items()},
        )


def describe(tasks: Sequence[Task], raw: RawClient, division: Division, *, scaling: str = "federated") -> Description:
    """Describe a client's training rows; moments are told of what this scaling (SCALINGS) pools."""
    training = division.training(raw)
    features, columns = training.features, raw.features.names
    gaps = _marked(features, np.isnan(features.numbers).any(axis=0))
    empty = _marked(features, np.isnan(raw.features.numbers).all(axis=0))  # of all rows: a kind is no statistic
    categories = {}
    for name, values in features.texts.items():
        texts = set(values.tolist())
        if None in texts:
            gaps.add(name)
        categories[name] = tuple(sorted(texts - {None}))
    targets = {}
    if scaling in ("federated", "targets"):
        for task in tasks:
            if task.kind in ("regression", "robust", "count") and task.name in training.labels:
                targets[task.name] = Moments.of(training.labels[task.name].values[:, None])
    return Description(
        columns=columns,
        kinds=tuple("text" if name in categories else "empty" if name in empty else "number" for name in columns),
        gaps=tuple(name in gaps for name in columns),
        categories=categories,
        classes={task.name: _classes_of(task, raw) for task in tasks if task.name in raw.labels and _is_open(task)},
        moments=Moments.of(features.numbers) if scaling == "federated" else None,
        targets=targets,
    )


def _marked(features: RawFeatures, marks: Any) -> set[str]:
    """The columns of numbers at which `marks` is true."""
    return {features.number_names[i] for i in np.flatnonzero(marks)} if marks.any() else set()


def _is_open(task: Task) -> bool:
    return task.kind in ("binary", "multiclass") and task.classes is None


def _classes_of(task: Task, raw: RawClient) -> tuple[Any, ...]:
    vocabulary = raw.labels[task.name].vocabulary or ()
    # By type first: 1 and "1" have no order. The order of first appearance would tell something of the rows.
    return tuple(sorted(vocabulary, key=lambda label: (isinstance(label, str), label)))
