"""Round 0, the server's part: from what every client says of its data to what all of them use.

>>> def note(*ages):
...     moments = Moments.of(np.array([ages]).T)
...     return Description(("age",), ("number",), (False,), {}, {}, {"pulse": len(ages)}, moments, {})
>>> agree([Task("pulse")], {"basel": note(10.0, 30.0), "bern": note(80.0)}).scaler.mean
array([40.])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfed.data.features.ranks import LEAST_GROUP, Ranks, Sketch
from polyfed.data.features.robust_units import pool_robustly
from polyfed.data.features.scaling import FeatureScaler, Moments
from polyfed.data.features.transforms import TRANSFORMS, changed, undone
from polyfed.data.labels.codec import LabelCodec, settle_classes
from polyfed.data.schema.description import Description
from polyfed.data.schema.limits import MOST_CATEGORIES, OTHER
from polyfed.data.task import Task
from polyfed.errors import DataError
from polyfed.kinds import LabelForm


@dataclass(frozen=True)
class Column:
    """One feature as all clients use it."""

    name: str
    kind: str  # "number" or "text"
    gaps: bool  # some client lacks values: an indicator says where
    categories: tuple[str, ...] = ()
    transform: str = ""  # of numbers: "log" or "rank"
    ranks: Ranks | None = None

    def encoded_names(self) -> list[str]:
        """What the columns of numbers that this one becomes are called."""
        values = [f"{self.name}={text}" for text in self.categories] if self.kind == "text" else [self.scale_name]
        return [*values, f"{self.name} is missing"] if self.gaps else values

    @property
    def scale_name(self) -> str:
        """What its numbers are called as models see them."""
        return f"{self.name}, {self.transform}" if self.transform else self.name

    def changed(self, numbers: np.ndarray) -> np.ndarray:
        """Its numbers, transformed if that was agreed."""
        return changed(numbers, self.transform, self.ranks)

    def undone(self, numbers: np.ndarray) -> np.ndarray:
        """`changed` undone."""
        return undone(numbers, self.transform, self.ranks)

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
class Agreement:
    """What everyone knows after round 0.

    Attributes:
        columns: the features in the order that all clients use.
        scaler: of the columns of numbers, in their order; changes nothing unless scaling is federated.
        codecs: how the labels of each task are coded; their tasks have their classes filled in.
    """

    columns: tuple[Column, ...]
    scaler: FeatureScaler
    codecs: Mapping[str, LabelCodec]

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(codec.task for codec in self.codecs.values())

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            "columns": [column.to_dict() for column in self.columns],
            "mean": self.scaler.mean.tolist(),
            "scale": self.scaler.scale.tolist(),
            "codecs": [codec.to_dict() for codec in self.codecs.values()],
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Agreement:
        """The agreement that `to_dict` described."""
        codecs = [LabelCodec.from_dict(codec) for codec in described["codecs"]]
        mean, scale = (np.array(described[key], dtype=np.float64) for key in ("mean", "scale"))
        return cls(
            tuple(Column.from_dict(column) for column in described["columns"]),
            FeatureScaler(mean, scale),
            {codec.task.name: codec for codec in codecs},
        )


def agree(tasks: Sequence[Task], descriptions: Mapping[str, Description]) -> Agreement:
    """Pool what the clients (name → description) say; the order in which they come changes nothing.

    Of a text column with too many levels those stay that most clients have, and the others become OTHER.
    """
    notes = {name: descriptions[name] for name in sorted(descriptions) if not descriptions[name].is_silent}
    if not notes:
        raise DataError(
            "no client has as many training labels as it takes to take part",
            where="the federation",
            remedy="give more labels, or lower min_rows",
        )
    _check_columns(notes)
    columns = _agree_columns(notes)
    numeric = [column for column in columns if column.kind == "number"]
    names = [column.name for column in numeric]
    moments = [_reordered(note, names) for note in notes.values() if note.moments is not None]
    scaler = FeatureScaler.identity(len(numeric))
    if moments:
        scaler = _with_ranks(pool_robustly(moments), numeric, notes).scaler()
    return Agreement(columns, scaler, {task.name: _agree_codec(task, notes) for task in tasks})


def _check_columns(notes: Mapping[str, Description]) -> None:
    (first, reference), *others = notes.items()
    expected = set(reference.columns)
    for name, note in others:
        if note.columns == reference.columns or expected == (found := set(note.columns)):
            continue
        lacking, having, column = name, first, next((c for c in reference.columns if c not in found), None)
        if column is None:
            lacking, having, column = first, name, next(c for c in note.columns if c not in expected)
        raise DataError(
            f"lacks column {column!r}, which client {having!r} has",
            where=f"client {lacking!r}",
            remedy="give all clients the same columns, empty where values are unknown (those of arrays are x0, x1, ...)",
        )


def _agree_columns(notes: Mapping[str, Description]) -> tuple[Column, ...]:
    kinds: dict[str, dict[str, str]] = {name: {} for name in next(iter(notes.values())).columns}
    gaps: set[str] = set()
    categories: dict[str, Counter[str]] = {name: Counter() for name in kinds}
    known: set[Any] = set()  # thousands of clients, a handful of different answers
    for client, note in notes.items():
        if (answer := (note.columns, note.kinds, note.gaps)) not in known:
            known.add(answer)
            for name, kind, has_gaps in zip(*answer, strict=True):
                kinds[name].setdefault(kind, client)
                if has_gaps:
                    gaps.add(name)
        for name, texts in note.categories.items():
            categories[name].update(texts)
    columns = []
    for name, found in kinds.items():
        texts = found.get("text", found.get("wide"))
        numbers = next((found[kind] for kind in ("number", *TRANSFORMS) if kind in found), None)
        if numbers is not None and texts is not None:
            raise DataError(
                f"column {name!r} holds numbers here but text at client {texts!r}",
                where=f"client {numbers!r}",
                remedy="make it text or numbers everywhere, or drop it",
            )
        levels = _levels(categories[name])
        kind = "number" if texts is None else "text"  # nothing but gaps: a number that is always missing
        transform = _agree_transform(name, found) if texts is None else ""
        ranks = _agree_ranks(name, notes) if transform == "rank" else None
        columns.append(Column(name, kind, name in gaps, levels, transform, ranks))
    if not any(column.encoded_names() for column in columns):
        raise DataError("no training row has any value", where="features", remedy="give more rows, or more columns")
    return tuple(columns)


def _agree_transform(name: str, found: Mapping[str, str]) -> str:
    """How all clients that have values of a column transform it."""
    asked = [kind for kind in found if kind != "empty"]
    if len(asked) > 1:
        raise DataError(
            f"column {name!r} is taken as {_scale(asked[0])} here but as {_scale(asked[1])} at client {found[asked[1]]!r}",
            where=f"client {found[asked[0]]!r}",
            remedy="transform it everywhere alike",
        )
    return asked[0] if asked and asked[0] in TRANSFORMS else ""


def _scale(kind: str) -> str:
    return "it is" if kind == "number" else f"its {kind}"


def _sketches(name: str, notes: Mapping[str, Description]) -> list[Sketch]:
    return [note.ranks[name] for note in notes.values() if name in note.ranks]


def _agree_ranks(name: str, notes: Mapping[str, Description]) -> Ranks:
    sketches = _sketches(name, notes)
    if not sketches:
        raise DataError(
            f"no client has the {LEAST_GROUP} training values of column {name!r} that its ranks are made of",
            where="transform",
            remedy="take its logarithm, or leave it as it is",
        )
    return Ranks.pool(sketches)


def _with_ranks(pooled: Moments, columns: Sequence[Column], notes: Mapping[str, Description]) -> Moments:
    """Moments of the columns of numbers, with those of ranks, which nobody had to send."""
    mean, spread = pooled.mean.copy(), pooled.spread.copy()
    for i, column in enumerate(columns):
        if column.ranks is not None:
            mean[i], spread[i] = column.ranks.moments(_sketches(column.name, notes))
    return Moments(pooled.count, mean, spread)


def _levels(told: Counter[str]) -> tuple[str, ...]:
    """The levels of a text column, of which so many clients told each."""
    n_others = len(told.keys() - {OTHER})
    if n_others <= MOST_CATEGORIES:
        return tuple(sorted(told))
    usual = sorted(told.keys() - {OTHER}, key=lambda level: (-told[level], level))
    return tuple(sorted({*usual[:MOST_CATEGORIES], OTHER}))


def _reordered(note: Description, names: Sequence[str]) -> Moments:
    moments, present = note.moments, note.number_columns
    assert moments is not None
    if present == tuple(names):
        return moments
    at = np.array([present.index(name) for name in names], dtype=np.int64)
    return Moments(moments.count[at], moments.mean[at], moments.spread[at])


def _agree_codec(task: Task, notes: Mapping[str, Description]) -> LabelCodec:
    if task.form.has_classes:
        if task.classes is None:
            task = replace(task, classes=_agree_classes(task, notes))
        return LabelCodec(task, task.classes, 0.0, 1.0)
    parts = [note.targets[task.name] for note in notes.values() if task.name in note.targets]
    if not parts:
        return LabelCodec(task, None, 0.0, 1.0)
    pooled = pool_robustly(parts).scaler()
    return LabelCodec.standard(task, float(pooled.mean[0]), float(pooled.scale[0]))


def _agree_classes(task: Task, notes: Mapping[str, Description]) -> tuple[Any, ...]:
    written: dict[Any, Any] = {}  # 1 and True are one label, but how all clients write it decides how it is told
    different: dict[Any, None] = {}
    for client, note in notes.items():
        labels = note.classes.get(task.name, ())
        written.update({(type(label), label): label for label in labels})
        different.update(dict.fromkeys(labels))
        if task.form is LabelForm.BINARY and len(different) > 2:
            first, second, third = list(different)[:3]
            raise DataError(
                f"label {third!r} is a third class after {first!r} and {second!r} of other clients",
                where=f"client {client!r}, task {task.name!r}",
                remedy="declare the task multiclass or correct the label",
            )
    return settle_classes(task, list(written.values()), where=f"task {task.name!r}")
