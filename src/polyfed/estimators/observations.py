"""From what users have to what the GP wants: scaled inputs, coded labels, rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfed.data import FeatureScaler, LabelCodec, Task, as_features
from polyfed.data.client import ClientData
from polyfed.errors import DataError, UnknownNameError, nearest
from polyfed.gp import Likelihood, Rows
from polyfed.modelling.rows import rows_of


@dataclass(frozen=True, eq=False)
class Observations(ClientData):
    """All that `fit` was given, coded; inputs are as they came, not yet scaled."""

    feature_names: tuple[str, ...] | None

    def rows(self, scaler: FeatureScaler, likelihoods: Mapping[str, Likelihood]) -> Rows:
        return rows_of(replace(self, x=scaler.apply(self.x)), likelihoods)


def collect(
    tasks: Sequence[Task],
    data: Any,
    labels: Any = None,
    *,
    scale: bool = True,
) -> Observations:
    """Check and code the arguments of `fit`: a dictionary task → (X, y), or one X with labels for each task."""
    given = _by_task(tasks, data, labels)
    x: list[np.ndarray] = []
    first: dict[int, int] = {}  # an X that several tasks share is kept once: id → its first row
    names: tuple[str, ...] | None = None
    codecs, seen, n_inputs = {}, {}, 0
    for task in tasks:
        X, y = given.get(task.name, (None, None))
        codecs[task.name] = LabelCodec.learn(task, y, scale=scale)
        if X is None:
            continue
        if id(X) not in first:
            features = as_features(X, where=f"features of task {task.name!r}", names=names)
            if x and features.values.shape[1] != x[0].shape[1]:
                raise DataError(
                    f"{features.values.shape[1]} columns, but the tasks before have {x[0].shape[1]}",
                    where=f"features of task {task.name!r}",
                    remedy="give all tasks the same features",
                )
            names = names or features.names
            first[id(X)] = n_inputs
            n_inputs += len(features.values)
            x.append(features.values)
        observed, coded = codecs[task.name].encode(y)
        n_rows, n_given = len(X), len(y) if y is not None else 0
        if n_rows != n_given:
            raise DataError(
                f"{n_given} labels for {n_rows} rows of features",
                where=f"task {task.name!r}",
                remedy="give a label for each row, and NaN or None where it is missing",
            )
        seen[task.name] = (observed.astype(np.int64) + first[id(X)], coded)
    if not x:
        raise DataError("no features at all", where="fit", remedy="give at least one task as (X, y)")
    return Observations(np.concatenate(x), seen, codecs, names)


def _by_task(tasks: Sequence[Task], data: Any, labels: Any) -> dict[str, tuple[Any, Any]]:
    known = [task.name for task in tasks]
    if labels is None:
        if not isinstance(data, Mapping):
            raise DataError(
                f"fit got {type(data).__name__} and no labels",
                where="fit",
                remedy="pass {task: (X, y)}, or X and {task: y}",
            )
        given = {}
        for name, pair in data.items():
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise DataError("is not a pair", where=f"data of task {name!r}", remedy="pass (X, y)")
            given[name] = (pair[0], pair[1])
    else:
        # A DataFrame of labels may have other columns too; a dictionary may not.
        is_table = hasattr(labels, "columns")
        names = [name for name in known if name in labels.columns] if is_table else list(labels)
        given = {name: (data, labels[name]) for name in names}
    for name in given:
        if name not in known:
            raise UnknownNameError(f"task {name!r} is unknown", where="fit", remedy=nearest(name, known))
    return given
