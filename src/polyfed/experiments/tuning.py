"""Validation rows choose the combination of a grid that a method is judged by, and the test rows are not looked at.
The loss of a run is the log loss of its personal models on the validation rows after the last round, in nats: the mean
over the clients of each task (`Kind.loss`), summed over the tasks. Other units of a target add the same number
to the loss of every combination, so the sum needs no weights: no unit makes a task count for more than another.
One combination is chosen for all seeds, that with the least mean over them; of equal ones the first. A combination counts
only if it has a finite loss with every seed: one that fails or diverges somewhere is never chosen.

>>> choice = Choice({"learning_rate": [0.1, 0.01]}, [[3, 4], [1, 5]])
>>> choice.means, choice.chosen
([3.5, 3.0], {'learning_rate': 0.01})
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.data import Federation
from polyfed.errors import ConfigError
from polyfed.experiments.grid import Grid, Options, combinations
from polyfed.folders.lines import Event, read_events
from polyfed.kinds import KINDS

if TYPE_CHECKING:
    from polyfed.experiments.comparing import Cell


@dataclass(frozen=True)
class Choice:
    """A method's grid, and for each of its combinations the losses by seed; a loss that is not there is infinite."""

    grid: Grid
    losses: Sequence[Sequence[float]]

    @property
    def means(self) -> list[float]:
        """Combination by combination, over the seeds."""
        return [sum(of_seeds) / len(of_seeds) for of_seeds in self.losses]

    @property
    def tried(self) -> list[tuple[Options, float, Sequence[float]]]:
        """Combination, its mean loss, and its losses seed by seed."""
        return list(zip(combinations(self.grid), self.means, self.losses, strict=True))

    @property
    def chosen(self) -> Options | None:
        """The combination with the least mean loss, or None if none is finite."""
        finite = [(mean, options) for options, mean, _ in self.tried if math.isfinite(mean)]
        return min(finite, key=itemgetter(0))[1] if finite else None


def tune(grids: Mapping[str, Grid], cells: Sequence[Cell], failed: Container[Path]) -> dict[str, Choice]:
    """Method → what is chosen for it, from the cells of a comparison that were completed."""

    def loss(cell: Cell) -> float:
        return math.inf if cell.folder in failed else loss_of(read_events(cell.folder))

    def losses(method: str, options: Options) -> list[float]:
        return [loss(cell) for cell in cells if cell.method == method and cell.options == options]

    return {m: Choice(grid, [losses(m, options) for options in combinations(grid)]) for m, grid in grids.items()}


def loss_of(events: Sequence[Event]) -> float:
    """The loss of a run with these events, as said above; infinite if a client's is no number."""
    from polyfed.engine.tables import history, summary

    # What is not handed on cannot be looked at.
    events = [e for e in events if e["event"] == "start" or e.get("part") == "validation"]
    kinds = events[0]["tasks"]
    names = sorted({KINDS[kind].loss for kind in kinds.values()})
    table: Any = history(events)  # pandas' own types are too wide to be of help
    last = table[(table["model"] == "personal") & (table["round"] == table["round"].max())]
    if last.empty or last.loc[last["metric"].isin(names), "value"].isna().any():
        return math.inf  # a mean would leave out the very clients where the method broke down
    return float(summary(events, kinds, metrics=names, part="validation").mean().sum())


def reject_without_validation(federation: Federation, seeds: Sequence[int], where: str) -> None:
    """Without validation rows a grid could only be chosen by the test rows."""
    place = f"{where}, compare.grid"
    if federation.split.validation == 0:
        remedy = "set data.validation (--validation-fraction), for example to 0.1"
        raise ConfigError("there are no validation rows to choose by", where=place, remedy=remedy)
    for seed in seeds:
        if not any(parts.validation.n_labels for parts in federation.prepare(seed).clients.values()):
            what = f"with seed {seed} no client has a label among its validation rows"
            raise ConfigError(what, where=place, remedy=f"raise data.validation above {federation.split.validation:g}")
