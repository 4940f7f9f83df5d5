"""What each page compares, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .cells import Cell, TasksApart

PROJECTION: dict[str, Any] = {"n_latents": 2, "kernel": "rbf", "projection": 8}  # the presets of Table 1
FEDAVG: dict[str, Any] = {"task_mode": "separate", "local_epochs": 2}
RATES = {"celeba": 0.05, "dogcat": 0.01}  # of FedAvg, as chosen for Table 1
Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Row:
    label: str
    method: str
    rounds: int
    options: dict[str, Any] = field(default_factory=dict)

    def cell(self, place: Place, seed: int) -> Cell:
        options = self.options
        if self.method == "fedavg":
            options = {**options, "learning_rate": RATES[place.data]}
        return Cell(place.data, place.size, seed, self.method, self.rounds, options, place.targets)


@dataclass(frozen=True)
class Place:
    title: str
    data: str
    size: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Rows that are compared in each of these places."""

    places: Sequence[Place]
    rows: Sequence[Row]


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "accuracy": ("accuracy %", lambda v: f"{100 * v:.2f}"),
    "mse": ("MSE", lambda v: f"{v:.3f}"),
    "nll": ("log loss", lambda v: f"{v:.3f}"),
    "ece": ("ECE", lambda v: f"{v:.3f}"),
    "seconds": ("CPU of a run, s", lambda v: f"{v:.1f}"),
    "up": ("sent in a round, kB", lambda v: f"{v / 1e3:.1f}"),
    "up_most": ("at the most", lambda v: f"{v / 1e3:.1f}"),
    "down": ("received, kB", lambda v: f"{v / 1e3:.1f}"),
    "down_most": ("at the most", lambda v: f"{v / 1e3:.1f}"),
    "memory": ("peak memory, GB", lambda v: f"{v:.2f}"),
}


@dataclass(frozen=True)
class Page:
    title: str
    about: str
    groups: Sequence[Group]
    columns: Sequence[str] = ("accuracy", "mse", "nll", "ece")
    alone: bool = False  # each cell in a process of its own

    def key(self, cell: Cell) -> str:
        """By which its scores are known; those of a process of its own are others."""
        return f"{cell.key} alone" if self.alone else cell.key

    def cells(self, seeds: int) -> Iterator[Cell]:
        for seed in range(seeds):
            for group in self.groups:
                for place in group.places:
                    yield from (row.cell(place, seed) for row in group.rows)

    def text(self, scores: Scores, seeds: int, command: str) -> str:
        parts = [f"# {self.title}", self.about.strip()]
        for group in self.groups:
            for place in group.places:
                if lines := [line for row in group.rows if (line := self._line(row, place, scores, seeds))]:
                    heads = ["| " + " | ".join(["", *(COLUMNS[name][0] for name in self.columns)]) + " |"]
                    heads.append("|:--|" + "--:|" * len(self.columns))
                    parts.append("\n".join([f"**{place.title}**", "", *heads, *lines]))
        return "\n\n".join([*parts, f"- command: `{command}`"]) + "\n"

    def _line(self, row: Row, place: Place, scores: Scores, seeds: int) -> str:
        keys = [self.key(row.cell(place, seed)) for seed in range(seeds)]
        found = [scores[key] for key in keys if key in scores]
        if not found:
            return ""
        cells = []
        for name in self.columns:
            write, values = COLUMNS[name][1], [one[name] for one in found]
            varies = name in ("accuracy", "mse", "nll", "ece") and len(values) > 1
            cells.append(
                write(float(np.mean(values))) + (f" ± {write(float(np.std(values, ddof=1)))}" if varies else "")
            )
        missing = f" ({len(found)} of {seeds} seeds)" if len(found) < seeds else ""
        return f"| {row.label}{missing} | " + " | ".join(cells) + " |"


ZERO = Row("pfed-mul, mean zero", "pfed-mul", 70, PROJECTION | {"mean": "zero"})
LINEAR = Row("pfed-mul, mean linear", "pfed-mul", 70, PROJECTION | {"mean": "linear"})
AVERAGE, HIER = Row("fedavg", "fedavg", 70, FEDAVG), Row("pfed-hier", "pfed-hier", 26)
BEFORE: dict[str, Any] = {"n_components": 256}  # the default when these pages were run
HIER_BEFORE = Row("pfed-hier", "pfed-hier", 26, BEFORE)
NAMES = {"celeba": "CelebA", "dogcat": "Dogcat"}
TABLE = [
    Place(f"{NAMES[data]}, {size} (a cell of Table 1)", data, size)
    for data in ("celeba", "dogcat")
    for size in ("10x20", "20x15", "50x10")
]

PAGES = {
    "projection": Page(
        "Two tasks that have nothing in common",
        """
pFed-Mul learns a projection of the features by the gradients of all tasks together. This page asks what becomes of a task whose
gradients are small beside those of another, and what a prior mean that is shared (`mean`) does about it: other attributes
and landmarks of CelebA than those of [Table 1](table1.md), and below them the cells of that table. Validation images, mean over
the clients, ± standard deviation over the seeds; `pfed-hier` has 256 components. What else was tried is in
[images.md](../images.md).
""",
        [
            Group(
                [
                    Place("CelebA, 10x20: Attractive and nose_x", "celeba", "10x20", ("Attractive", "nose_x")),
                    Place("CelebA, 10x20: Male and righteye_x", "celeba", "10x20", ("Male", "righteye_x")),
                ],
                [ZERO, LINEAR, AVERAGE, HIER_BEFORE],
            ),
            Group(TABLE, [ZERO, LINEAR]),
        ],
    ),
    "parts": Page(
        "Parts of pfed-hier",
        """
What `pfed-hier` on images owes to each of its parts: one is taken away at a time. 256 components, the default when this was run
(now 384). Validation images, 26 rounds, mean over the clients, ± standard deviation over the seeds if there are several.
[images.md](../images.md) says what follows.
""",
        [
            Group(
                TABLE[::3],
                [
                    HIER_BEFORE,
                    Row("each task alone", TasksApart.name, 26),
                    Row("not curved", "pfed-hier", 26, BEFORE | {"linear_rounds": 1000}),
                    Row("no personal part", "pfed-hier", 26, BEFORE | {"n_personal": 0}),
                    Row("Pólya-Gamma bound", "pfed-hier", 26, BEFORE | {"bound": "polya-gamma"}),
                    Row("64 components", "pfed-hier", 26, {"n_components": 64}),
                ],
            )
        ],
    ),
    "costs": Page(
        "What a run on images costs",
        """
Features are computed already. Messages are those of a client in a round: the median, and the largest of the run (of `pfed-hier`
those of the first rounds, which find principal components, and of the round in which a client is sent these). CPU seconds with
one thread, evaluation included; the peak of memory is that of the whole process, with torch and the features.
""",
        [Group(TABLE[2:3], [AVERAGE, LINEAR, HIER])],
        ("seconds", "up", "up_most", "down", "down_most", "memory"),
        alone=True,
    ),
}
