"""Round 0, the client's part: what a client sends the server about its data before any learning.

Only a `ClientSummary` leaves the client. All of it comes from training rows alone, and only what the client's limits let
through is in it: a task or a column with too few values is not spoken of, a category or class with too few rows is not
named, of a text column with many levels only the most frequent are (none, if nearly each row has its own), and a client
without a task that it may speak of sends nothing but that.

>>> from polyfed.data.raw import read_client
>>> raw = read_client("basel", ([[1.0], [3.0], [9.0]], {"pulse": [60, 80, 70]}), [Task("pulse")])
>>> summary = describe([Task("pulse")], raw, Division(np.array([0, 1]), np.array([]), np.array([2])))
>>> summary.moments.mean, summary.targets["pulse"].mean
(array([2.]), array([70.]))
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyfed.data.features.matrix import Described
from polyfed.data.features.raw import RawFeatures
from polyfed.data.features.transforms import LEAST_GROUP, Moments, Sketch, changed
from polyfed.data.raw import RawClient
from polyfed.data.schema.limits import LONGEST_TEXT, MOST_CATEGORIES, OPEN, OTHER, Limits
from polyfed.data.splits import Division
from polyfed.data.task import Label, Task
from polyfed.kinds import LabelForm

NUMBERS = ("number", "log", "rank", "empty")  # kinds of columns that are no text


@dataclass(frozen=True, eq=False)
class ClientSummary(Described):
    """What one client says of its data."""

    columns: tuple[str, ...]  # the features, in the client's order
    # "number", "log" or "rank" (numbers that are to be transformed), "text", "empty" if the client has no value in it, or
    # "wide" if it is text with many levels, none of which may be sent
    kinds: tuple[str, ...]
    gaps: tuple[bool, ...]  # whether values of each column are missing
    # of text columns: those that occur often enough, and OTHER if there are more
    categories: Mapping[str, tuple[str, ...]]
    classes: Mapping[str, tuple[Label, ...]]  # of class tasks without given classes: the labels that occur often enough
    labels: Mapping[str, int]  # task → how many training labels it has; none for a client that is silent
    # of the columns that are not text, transformed, and nothing of those that are to be ranked; None unless federated
    moments: Moments | None
    targets: Mapping[str, Moments]  # of targets and counts; empty unless scaling is federated or targets
    # of columns that are to be ranked: the groups of its values
    ranks: Mapping[str, Sketch] = field(default_factory=dict)

    @classmethod
    def nothing(cls) -> ClientSummary:
        return cls((), (), (), {}, {}, {}, None, {})

    @property
    def is_silent(self) -> bool:
        return not self.labels

    @property
    def n_bytes(self) -> int:
        return len(json.dumps(self.to_dict(), separators=(",", ":")).encode())

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> ClientSummary:
        columns, kinds, gaps = (tuple(described[key]) for key in ("columns", "kinds", "gaps"))
        categories, classes = (
            {name: tuple(own) for name, own in described[key].items()} for key in ("categories", "classes")
        )
        moments, labels = described["moments"], dict(described["labels"])
        moments = None if moments is None else Moments.from_dict(moments)
        targets = {task: Moments.from_dict(part) for task, part in described["targets"].items()}
        ranks = {name: Sketch.from_dict(part) for name, part in described["ranks"].items()}
        return cls(columns, kinds, gaps, categories, classes, labels, moments, targets, ranks)


def describe(
    tasks: Sequence[Task], raw: RawClient, division: Division, *, scaling: str = "federated", limits: Limits = OPEN
) -> ClientSummary:
    """Describe a client's training rows; moments are sent of what this scaling (SCALINGS) pools."""
    training = division.training(raw)
    labels = {task.name: len(training.labels[task.name].at) for task in tasks if task.name in training.labels}
    reported = limits.reported(labels)
    if not reported:
        return ClientSummary.nothing()
    features = training.features
    scaled = scaled_tasks(tasks, reported, scaling)
    return replace(
        describe_columns(features, raw.features, limits.min_count),
        classes={name: _classes_of(raw, name, division, limits.min_count) for name in open_tasks(tasks, reported)},
        labels={task: labels[task] for task in reported},
        moments=_moments(features, limits) if scaling == "federated" else None,
        targets={name: Moments.of(training.labels[name].values[:, None]) for name in scaled},
        ranks=_ranks(features, limits),
    )


def open_tasks(tasks: Sequence[Task], reported: Collection[str]) -> dict[str, Task]:
    """Those of the reported tasks whose classes are to be agreed."""
    return {t.name: t for t in tasks if t.name in reported and t.form.has_classes and t.classes is None}


def scaled_tasks(tasks: Sequence[Task], reported: Collection[str], scaling: str) -> dict[str, Task]:
    """Those of the reported tasks whose moments this scaling pools."""
    pooled = (LabelForm.NUMBER, LabelForm.COUNT) if scaling in ("federated", "targets") else ()
    return {t.name: t for t in tasks if t.name in reported and t.form in pooled}


def describe_columns(features: RawFeatures, every: RawFeatures, min_count: int = 1) -> ClientSummary:
    """Kinds, gaps and categories of the columns of training rows; which are empty, `every` row says: a kind is no statistic."""
    has_gaps, is_empty = np.isnan(features.numbers).any(axis=0), np.isnan(every.numbers).all(axis=0)
    gaps, empty = ({features.number_names[i] for i in np.flatnonzero(marks)} for marks in (has_gaps, is_empty))
    kinds = {name: "empty" if name in empty else features.transform.get(name, "number") for name in every.names}
    categories = {}
    for name, values in features.texts.items():
        levels, has_gaps = _levels(values, min_count)
        if has_gaps:
            gaps.add(name)
        kinds[name] = "wide" if levels is None else "text"
        if levels is not None:
            categories[name] = levels
    named_gaps = tuple(name in gaps for name in kinds)
    return ClientSummary(tuple(kinds), tuple(kinds.values()), named_gaps, categories, {}, {}, None, {})


def _moments(features: RawFeatures, limits: Limits) -> Moments:
    """Of the columns of numbers; those that are to be ranked need none, and say none."""
    numbers = features.numbers
    if features.transform:
        numbers = numbers.copy()
        for i, name in enumerate(features.number_names):
            how = features.transform.get(name, "")
            numbers[:, i] = np.nan if how == "rank" else changed(numbers[:, i], how)
    return Moments.of(numbers).of_at_least(limits.min_rows)


def _ranks(features: RawFeatures, limits: Limits) -> dict[str, Sketch]:
    ranked = {name: features.column(name) for name, how in features.transform.items() if how == "rank"}
    reported = {name: values for name, values in ranked.items() if np.isfinite(values).sum() >= limits.min_rows}
    found = {name: Sketch.of(values, max(limits.min_count, LEAST_GROUP)) for name, values in reported.items()}
    return {name: sketch for name, sketch in found.items() if sketch is not None}


def _levels(values: np.ndarray, min_count: int) -> tuple[tuple[str, ...] | None, bool]:
    """The texts of a column that may be sent, at most the most frequent (None: each row has one of its own), and whether
    some are missing."""
    counts = Counter(values.tolist())
    has_gaps = counts.pop(None, 0) > 0
    many = len(counts) > MOST_CATEGORIES
    least = max(min_count, 2) if many else min_count  # of many, a text of one row is rather a name than a level
    usual = [text for text, n in counts.items() if n >= least and len(text) <= LONGEST_TEXT]
    if many and not usual:
        return None, has_gaps
    kept = set(sorted(usual, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES])
    return tuple(sorted(kept | {OTHER} if len(kept) < len(counts) else kept)), has_gaps


def _classes_of(raw: RawClient, task: str, division: Division, min_count: int) -> tuple[Label, ...]:
    """Classes of rows that are not held out; few-shot learning sets labels aside, and what exists is part of the task."""
    labels = raw.labels[task]
    vocabulary = labels.vocabulary or ()
    held_out = np.isin(labels.at, np.concatenate([division.validation, division.test]))
    counts = np.bincount(labels.values[~held_out].astype(np.int64), minlength=len(vocabulary))
    named = [label for label, n in zip(vocabulary, counts, strict=True) if n >= min_count]
    # By type first: 1 and "1" have no order. The order of first appearance would reveal something of the rows.
    return tuple(sorted(named, key=lambda label: (isinstance(label, str), label)))
