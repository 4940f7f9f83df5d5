"""Whether a prepared federation that was stored can be one: what is wrong is named, and nothing odd reaches a method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polyfed.data.client import ClientData
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.schema.negotiation import Schema
from polyfed.errors import DataError
from polyfed.kinds import LabelForm

WHERE, REMEDY = "saved study", "give both parts of one save"


def reject_odd_schema(agreed: Schema, n_tasks: int) -> None:
    """Each column and each task once, and classes where a task has them."""
    names = [column.name for column in agreed.columns]
    if len(set(names)) < len(names) or len(agreed.codecs) < n_tasks:
        raise odd("a column or a task is there twice")
    for name, codec in agreed.codecs.items():
        if codec.classes != codec.task.classes or (codec.classes is None) != (not codec.task.form.has_classes):
            raise odd(f"the classes of task {name!r} are not those of its codec")


def reject_odd_scale(mean: np.ndarray, scale: np.ndarray, agreed: Schema) -> None:
    """One mean and one positive scale for each column of numbers."""
    n = sum(column.kind == "number" for column in agreed.columns)
    if not (_is_floats(mean, (n,)) and _is_floats(scale, (n,)) and (scale > 0).all()):
        raise odd("a client's own scale is not one number above 0 for each column")


def whose(arrays: Mapping[str, np.ndarray], prefix: str, i: int) -> int:
    """The client whose inputs these are."""
    if (found := arrays.get(f"{prefix}/x_of")) is None:
        return i
    if found.shape != (1,) or found.dtype.kind not in "iu" or not 0 <= int(found[0]) < i:
        raise odd(f"{prefix}/x_of is no client before")
    return int(found[0])


def reject_odd_rows(data: ClientData, n_features: int, prefix: str) -> None:
    """Finite inputs, labels at rows that are there, and labels that a task of this kind can have."""
    if not _is_floats(data.x, (len(data.x) if data.x.ndim else 0, n_features)):
        raise odd(f"{prefix}/x is not a finite table of {n_features} columns")
    for task, (at, y) in data.labels.items():
        if at.ndim != 1 or at.dtype != np.int64 or (len(at) and not 0 <= at.min() <= at.max() < len(data.x)):
            raise odd(f"{prefix}: labels of task {task!r} at rows that are not there")
        codec = data.codecs[task]
        shape = (len(at), 2) if codec.task.form is LabelForm.PAIR else (len(at),)
        if not _is_floats(y, shape) or not _can_be(y, codec):
            raise odd(f"{prefix}: labels of task {task!r} that a {codec.task.kind} task cannot have")
    for task, weight in data.weights.items():
        n = len(data.labels[task][0]) if task in data.labels else -1
        # On average one; what is above would say more of the federation's functions than the labels can.
        if not _is_floats(weight, (n,)) or not (weight > 0).all() or weight.sum() > n * (1 + 1e-9):
            raise odd(f"{prefix}: weights of task {task!r} that are not one, on average, for each label")


def reject_odd_truth(truth: Mapping[str, np.ndarray], prefix: str) -> None:
    """As many values of each true function as inputs."""
    n = len(truth["x"]) if truth["x"].ndim == 2 else -1
    if n < 1 or not all(_is_floats(value, (n, *value.shape[1:])) for value in truth.values()):
        raise odd(f"{prefix} does not hold a value for each input")


def _can_be(y: np.ndarray, codec: LabelCodec) -> bool:
    form = codec.task.form
    if form is LabelForm.BINARY:
        return bool(np.isin(y, (-1.0, 1.0)).all())
    if form is LabelForm.CLASS:
        return bool(np.isin(y, np.arange(len(codec.classes or ()))).all())
    if form is LabelForm.PAIR:
        return bool(((y >= 0).all(axis=1) & (y[:, 0] <= y[:, 1]) & (y[:, 1] > 0)).all())
    return form is not LabelForm.COUNT or bool((y >= 0).all())


def _is_floats(values: np.ndarray, shape: tuple[int, ...]) -> bool:
    return values.dtype == np.float64 and values.shape == shape and bool(np.isfinite(values).all())


def odd(what: str) -> DataError:
    """What is wrong with a stored one."""
    return DataError(what, where=WHERE, remedy=REMEDY)
