"""Whether a prepared federation that was stored can be one: what is wrong is named, and nothing odd reaches a method."""

from __future__ import annotations

import numpy as np

from polyfed.data.client import ClientData
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.schema.negotiation import Schema
from polyfed.errors import DataError
from polyfed.kinds import LabelForm


def reject_odd_schema(agreed: Schema, n_tasks: int) -> None:
    """Each column and each task once, and classes where a task has them."""
    names = [column.name for column in agreed.columns]
    if len(set(names)) < len(names) or len(agreed.codecs) < n_tasks:
        raise odd("a column or a task is there twice")
    for name, codec in agreed.codecs.items():
        if codec.classes != codec.task.classes or (codec.classes is None) != (not codec.task.form.has_classes):
            raise odd(f"the classes of task {name!r} are not those of its codec")


def reject_odd_rows(data: ClientData, n_features: int, prefix: str) -> None:
    """Finite inputs, labels at rows that are there, and labels that a task of this kind can have."""
    if not is_floats(data.x, (len(data.x) if data.x.ndim else 0, n_features)):
        raise odd(f"{prefix}/x is not a finite table of {n_features} columns")
    for task, (at, y) in data.labels.items():
        if at.ndim != 1 or at.dtype != np.int64 or (len(at) and not 0 <= at.min() <= at.max() < len(data.x)):
            raise odd(f"{prefix}: labels of task {task!r} at rows that are not there")
        codec = data.codecs[task]
        shape = (len(at), 2) if codec.task.form is LabelForm.PAIR else (len(at),)
        if not is_floats(y, shape) or not _can_be(y, codec):
            raise odd(f"{prefix}: labels of task {task!r} that a {codec.task.kind} task cannot have")
    for task, weight in data.weights.items():
        n = len(data.labels[task][0]) if task in data.labels else -1
        # On average one; what is above would say more of the federation's functions than the labels can.
        if not is_floats(weight, (n,)) or not (weight > 0).all() or weight.sum() > n * (1 + 1e-9):
            raise odd(f"{prefix}: weights of task {task!r} that are not one, on average, for each label")


def _can_be(y: np.ndarray, codec: LabelCodec) -> bool:
    form = codec.task.form
    if form is LabelForm.BINARY:
        return bool(np.isin(y, (-1.0, 1.0)).all())
    if form is LabelForm.CLASS:
        return bool(np.isin(y, np.arange(len(codec.classes or ()))).all())
    if form is LabelForm.PAIR:
        return bool(((y >= 0).all(axis=1) & (y[:, 0] <= y[:, 1]) & (y[:, 1] > 0)).all())
    return form is not LabelForm.COUNT or bool((y >= 0).all())


def is_floats(values: np.ndarray, shape: tuple[int, ...]) -> bool:
    return values.dtype == np.float64 and values.shape == shape and bool(np.isfinite(values).all())


def odd(what: str) -> DataError:
    return DataError(what, where="saved study", remedy="give both parts of one save")
