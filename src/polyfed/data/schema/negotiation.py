"""Round 0, the server's part: from what every client says of its data to what all of them use.

>>> def summary(*ages):
...     moments = Moments.of(np.array([ages]).T)
...     return ClientSummary(("age",), ("number",), (False,), {}, {}, {"pulse": len(ages)}, moments, {})
>>> agree([Task("pulse")], {"basel": summary(10.0, 30.0), "bern": summary(80.0)}).scaler.mean
array([40.])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfed.data.features.transforms import (
    LEAST_GROUP,
    TRANSFORMS,
    FeatureScaler,
    Moments,
    Ranks,
    Sketch,
    changed,
    pool_robustly,
)
from polyfed.data.labels.codec import LabelCodec, settle_classes
from polyfed.data.schema.client_summary import NUMBERS, ClientSummary
from polyfed.data.schema.limits import MOST_CATEGORIES, OTHER
from polyfed.data.task import Label, Task
from polyfed.errors import DataError
from polyfed.kinds import LabelForm


@dataclass(frozen=True)
class Column:
    name: str
    kind: str  # "number" or "text"
    gaps: bool  # some client lacks values: an indicator says where
    categories: tuple[str, ...] = ()
    transform: str = ""  # of numbers: "log" or "rank"
    ranks: Ranks | None = None

    def encoded_names(self) -> list[str]:
        number = f"{self.name}, {self.transform}" if self.transform else self.name
        values = [f"{self.name}={text}" for text in self.categories] if self.kind == "text" else [number]
        return [*values, f"{self.name} is missing"] if self.gaps else values

    def changed(self, numbers: np.ndarray) -> np.ndarray:
        """Its numbers, transformed if that was agreed."""
        return changed(numbers, self.transform, self.ranks)

    def undone(self, numbers: np.ndarray) -> np.ndarray:
        """`changed` undone, as far as it can be."""
        if self.transform == "log":
            return np.sign(numbers) * np.expm1(np.abs(numbers))
        return numbers if self.ranks is None else self.ranks.undone(numbers)

    def to_dict(self) -> dict[str, Any]:
        described = {"name": self.name, "kind": self.kind, "gaps": self.gaps, "categories": list(self.categories)}
        if self.transform:
            described["transform"] = self.transform
        if self.ranks is not None:
            described |= {"values": list(self.ranks.values), "ranks": list(self.ranks.ranks)}
        return described

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Column:
        ranks = Ranks(tuple(described["values"]), tuple(described["ranks"])) if "ranks" in described else None
        plain = (described["name"], described["kind"], described["gaps"], tuple(described["categories"]))
        return cls(*plain, described.get("transform", ""), ranks)


@dataclass(frozen=True, eq=False)
class Schema:
    """What everyone knows after round 0."""

    columns: tuple[Column, ...]  # the features in the order that all clients use
    scaler: FeatureScaler  # of the columns of numbers, in their order; changes nothing unless scaling is federated
    codecs: Mapping[str, LabelCodec]  # how the labels of each task are coded; their tasks have their classes filled in

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(codec.task for codec in self.codecs.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": [column.to_dict() for column in self.columns],
            "mean": self.scaler.mean.tolist(),
            "scale": self.scaler.scale.tolist(),
            "codecs": [codec.to_dict() for codec in self.codecs.values()],
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Schema:
        codecs = [LabelCodec.from_dict(codec) for codec in described["codecs"]]
        scaler = FeatureScaler(*(np.array(described[key], dtype=np.float64) for key in ("mean", "scale")))
        columns = tuple(map(Column.from_dict, described["columns"]))
        return cls(columns, scaler, {codec.task.name: codec for codec in codecs})


def agree(tasks: Sequence[Task], summaries: Mapping[str, ClientSummary]) -> Schema:
    """Pool what the clients (name → summary) say; the order in which they come changes nothing.

    Of a text column with too many levels those stay that most clients have, and the others become OTHER.
    """
    summaries = {name: summaries[name] for name in sorted(summaries) if not summaries[name].is_silent}
    if not summaries:
        what = "no client has as many training labels as it takes to take part"
        raise DataError(what, where="the federation", remedy="give more labels, or lower min_rows")
    _check_columns(summaries)
    columns = agree_columns(summaries)
    numeric = [column for column in columns if column.kind == "number"]
    names = [column.name for column in numeric]
    moments = [_reordered(summary, names) for summary in summaries.values() if summary.moments is not None]
    scaler = FeatureScaler.identity(len(numeric))
    if moments:
        scaler = _with_ranks(pool_robustly(moments), numeric, summaries).scaler()
    return Schema(columns, scaler, {task.name: _agree_codec(task, summaries) for task in tasks})


def _check_columns(summaries: Mapping[str, ClientSummary]) -> None:
    (first, reference), *others = summaries.items()
    expected = set(reference.columns)
    for name, summary in others:
        if summary.columns == reference.columns or expected == (found := set(summary.columns)):
            continue
        lacking, having, column = name, first, next((c for c in reference.columns if c not in found), None)
        if column is None:
            lacking, having, column = first, name, next(c for c in summary.columns if c not in expected)
        what = f"lacks column {column!r}, which client {having!r} has"
        remedy = "give all clients the same columns, empty where values are unknown (those of arrays are x0, x1, ...)"
        raise DataError(what, where=f"client {lacking!r}", remedy=remedy)


def agree_columns(summaries: Mapping[str, ClientSummary]) -> tuple[Column, ...]:
    """The columns of all clients that speak, which have the same names."""
    kinds: dict[str, dict[str, str]] = {name: {} for name in next(iter(summaries.values())).columns}
    gaps: set[str] = set()
    categories: dict[str, Counter[str]] = {name: Counter() for name in kinds}
    known: set[tuple[tuple[object, ...], ...]] = set()  # thousands of clients, a handful of different answers
    for client, summary in summaries.items():
        if (answer := (summary.columns, summary.kinds, summary.gaps)) not in known:
            known.add(answer)
            for name, kind, has_gaps in zip(*answer, strict=True):
                kinds[name].setdefault(kind, client)
                if has_gaps:
                    gaps.add(name)
        for name, texts in summary.categories.items():
            categories[name].update(texts)
    columns = []
    for name, found in kinds.items():
        texts = found.get("text", found.get("wide"))
        numbers = next((found[kind] for kind in ("number", *TRANSFORMS) if kind in found), None)
        if numbers is not None and texts is not None:
            what = f"column {name!r} holds numbers here but text at client {texts!r}"
            raise DataError(what, where=f"client {numbers!r}", remedy="make it text or numbers everywhere, or drop it")
        levels = _levels(categories[name])
        kind = "number" if texts is None else "text"  # nothing but gaps: a number that is always missing
        transform = _agree_transform(name, found) if texts is None else ""
        ranks = None
        if transform == "rank":
            if not (sketches := _sketches(name, summaries)):
                what = f"no client has the {LEAST_GROUP} training values of column {name!r} that its ranks are made of"
                raise DataError(what, where="transform", remedy="take its logarithm, or leave it as it is")
            ranks = Ranks.pool(sketches)
        columns.append(Column(name, kind, name in gaps, levels, transform, ranks))
    if not any(column.encoded_names() for column in columns):
        raise DataError("no training row has any value", where="features", remedy="give more rows, or more columns")
    return tuple(columns)


def _agree_transform(name: str, found: Mapping[str, str]) -> str:
    """How all clients that have values of a column transform it."""
    asked = [kind for kind in found if kind != "empty"]
    if len(asked) > 1:
        here, there = ("it is" if kind == "number" else f"its {kind}" for kind in asked[:2])
        what = f"column {name!r} is taken as {here} here but as {there} at client {found[asked[1]]!r}"
        raise DataError(what, where=f"client {found[asked[0]]!r}", remedy="transform it everywhere alike")
    return asked[0] if asked and asked[0] in TRANSFORMS else ""


def _sketches(name: str, summaries: Mapping[str, ClientSummary]) -> list[Sketch]:
    return [summary.ranks[name] for summary in summaries.values() if name in summary.ranks]


def _with_ranks(pooled: Moments, columns: Sequence[Column], summaries: Mapping[str, ClientSummary]) -> Moments:
    """Moments of the columns of numbers, with those of ranks, which nobody had to send."""
    mean, std = pooled.mean.copy(), pooled.std.copy()
    for i, column in enumerate(columns):
        if column.ranks is not None:
            mean[i], std[i] = column.ranks.moments(_sketches(column.name, summaries))
    return Moments(pooled.count, mean, std)


def _levels(reported: Counter[str]) -> tuple[str, ...]:
    """The levels of a text column, each with the number of clients that sent it."""
    n_others = len(reported.keys() - {OTHER})
    if n_others <= MOST_CATEGORIES:
        return tuple(sorted(reported))
    usual = sorted(reported.keys() - {OTHER}, key=lambda level: (-reported[level], level))
    return tuple(sorted({*usual[:MOST_CATEGORIES], OTHER}))


def _reordered(summary: ClientSummary, names: Sequence[str]) -> Moments:
    present = [name for name, kind in zip(summary.columns, summary.kinds, strict=True) if kind in NUMBERS]
    moments = summary.moments
    assert moments is not None
    if present == list(names):
        return moments
    at = np.array([present.index(name) for name in names], dtype=np.int64)
    return Moments(moments.count[at], moments.mean[at], moments.std[at])


def _agree_codec(task: Task, summaries: Mapping[str, ClientSummary]) -> LabelCodec:
    if task.form.has_classes and task.classes is None:
        task = replace(task, classes=_agree_classes(task, summaries))
    parts = [summary.targets[task.name] for summary in summaries.values() if task.name in summary.targets]
    if task.form.has_classes or not parts:
        return LabelCodec(task, task.classes, 0.0, 1.0)
    return LabelCodec.standard(task, pool_robustly(parts).scaler())


def _agree_classes(task: Task, summaries: Mapping[str, ClientSummary]) -> tuple[Label, ...]:
    # 1 and True are one label, but how all clients write it decides how it is shown
    written: dict[tuple[type, Label], Label] = {}
    different: dict[Label, None] = {}
    for client, summary in summaries.items():
        labels = summary.classes.get(task.name, ())
        written.update({(type(label), label): label for label in labels})
        different.update(dict.fromkeys(labels))
        if task.form is LabelForm.BINARY and len(different) > 2:
            first, second, third = list(different)[:3]
            what = f"label {third!r} is a third class after {first!r} and {second!r} of other clients"
            remedy = "declare the task multiclass or correct the label"
            raise DataError(what, where=f"client {client!r}, task {task.name!r}", remedy=remedy)
    return settle_classes(task, list(written.values()), where=f"task {task.name!r}")
