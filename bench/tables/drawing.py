"""Which rows a method may learn from and which it is scored on; the same for all of them, drawn by table, client and seed.

Validation and test rows are drawn first, then labels of each task apart from those of the others, so that fewer labels are
some of the more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

import polyfed as pf

from .sets import TableSet

SCENARIOS = {
    "few": "every client has this number of labels of each task",
    "task": "a third of the clients lack one task; scores are theirs, of that task",
    "client": "a third of the clients have no label at all; scores are theirs",
}
MOST_SCORED = 80  # rows of a client, for validation and for testing each; a quarter of them where that is less


@dataclass(frozen=True, eq=False)
class Problem:
    """A federation whose test part is what is scored, and which scores count: client → tasks."""

    federation: pf.Federation
    scored: Mapping[str, tuple[str, ...]]
    std: Mapping[str, float]  # of the regression targets over all rows of these clients


def draw(table: TableSet, frame: pd.DataFrame, scenario: str, labels: int, seed: int, *, test: bool) -> Problem:
    tasks = tuple(table.tasks)
    names = sorted(frame["client"].unique())
    lacking = _lacking(names, tasks, scenario, _generator(table.name, scenario, seed))
    clients, scored = {}, {}
    for name in names:
        rows = frame[frame["client"] == name]
        learn, held = _parts(rows, tasks, labels, _generator(table.name, name, seed), test=test)
        missing = lacking.get(name, ())
        reported = {task: [None] * len(learn) if task in missing else _cells(learn[task]) for task in tasks}
        clients[name] = (learn[list(table.features)], reported)
        scored[name] = (held[list(table.features)], {task: _cells(held[task]) for task in tasks})
    declared = [pf.Task(task, kind, classes=_classes(frame[task], kind)) for task, kind in table.tasks.items()]
    return Problem(
        pf.Federation.from_clients(clients, declared, test=scored),
        {name: lacking.get(name, ()) for name in names if name in lacking}
        if scenario != "few"
        else dict.fromkeys(names, tasks),
        {task: float(frame[task].std()) for task, kind in table.tasks.items() if kind == "regression"},
    )


def _parts(
    rows: pd.DataFrame, tasks: tuple[str, ...], labels: int, rng: np.random.Generator, *, test: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = rng.permutation(len(rows))
    n = min(MOST_SCORED, max(1, len(rows) // 4))
    scored, rest = order[n : 2 * n] if not test else order[:n], order[2 * n :]
    learn = rows.iloc[rest].copy()
    for task in tasks:
        known = np.flatnonzero(learn[task].notna().to_numpy())
        kept = rng.permutation(known)[:labels]
        values = learn[task].astype(object).to_numpy(dtype=object, copy=True)
        values[np.setdiff1d(np.arange(len(learn)), kept)] = None
        learn[task] = pd.Series(values, index=learn.index, dtype=object)
    return learn[learn[list(tasks)].notna().any(axis=1)], rows.iloc[scored]


def _lacking(
    names: list[str], tasks: tuple[str, ...], scenario: str, rng: np.random.Generator
) -> dict[str, tuple[str, ...]]:
    chosen = sorted(rng.permutation(names)[: max(1, len(names) // 3)].tolist())
    if scenario == "client":
        return dict.fromkeys(chosen, tasks)
    return {name: (tasks[i % len(tasks)],) for i, name in enumerate(chosen)} if scenario == "task" else {}


def _classes(values: pd.Series, kind: str) -> tuple[str, ...] | None:
    """Of the whole table, so that few labels do not decide how many classes there are."""
    return None if kind == "regression" else tuple(sorted(values.dropna().astype(str).unique().tolist()))


def _cells(values: pd.Series) -> list:
    return [None if pd.isna(value) else value for value in values.tolist()]


def _generator(*names: str | int) -> np.random.Generator:
    digest = hashlib.sha256(repr(names).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))
