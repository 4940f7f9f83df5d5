"""From what users have to what the GP wants: features and labels as numbers, read as those of a client are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyfed.data import ClientData, Encoder, LabelCodec, Task
from polyfed.data.raw import by_task, read_given
from polyfed.data.schema.coding import code_rows
from polyfed.errors import DataError


def collect(tasks: Sequence[Task], data: Any, labels: Any = None, *, scale: bool = True) -> tuple[ClientData, Encoder]:
    """Check and code the arguments of `fit`: a dictionary task → (X, y), or one X with labels for each task."""
    if labels is None and not isinstance(data, Mapping):
        what = f"fit got {type(data).__name__} and no labels"
        raise DataError(what, where="fit", remedy="pass {task: (X, y)}, or X and {task: y}")
    known = [task.name for task in tasks]
    given = by_task(data if labels is None else (data, labels), known, "fit")
    if not given:
        raise DataError("no features at all", where="fit", remedy="give at least one task as (X, y)")
    in_order = {name: given[name] for name in (*known, None) if name in given}
    codecs = {
        task.name: LabelCodec.learn(task, in_order.get(task.name, (None, None))[1], scale=scale) for task in tasks
    }
    raw = read_given(in_order, tasks, where="fit")
    encoder = Encoder.learn(raw.features, scale=scale)
    return code_rows("fit", raw, encoder, codecs), encoder
