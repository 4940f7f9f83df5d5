"""Which combination of a grid a method is judged by: the validation rows choose, and the test rows are not looked at.

The loss of a run is the log loss of its personal models on the validation rows after the last round, in nats: the mean
over the clients of each task (`Kind.loss`), summed over the tasks. Other units of a target add the same number
to the loss of every combination, so the sum needs no weights: no unit makes a task count for more than another.
One combination is chosen for all seeds, that with the least mean over them; of equal ones the first. A combination counts
only if it has a finite loss with every seed: one that fails or diverges somewhere is never chosen.

>>> choice = Choice({"learning_rate": [0.1, 0.01]}, [{"learning_rate": 0.1}, {"learning_rate": 0.01}], [[3, 4], [1, 5]])
>>> choice.means, choice.chosen
([3.5, 3.0], {'learning_rate': 0.01})
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.errors import ConfigError
from polyfed.experiments.grid import Grid, combinations
from polyfed.folders.lines import read_events
from polyfed.kinds import KINDS

if TYPE_CHECKING:
    from polyfed.data import Federation
    from polyfed.experiments.comparing import Cell


@dataclass(frozen=True)
class Choice:
    """A method's grid, its combinations, and for each the losses by seed; a loss that is not there is infinite."""

    grid: Grid
    combinations: Sequence[dict[str, Any]]
    losses: Sequence[Sequence[float]]

    @property
    def means(self) -> list[float]:
        """Combination by combination, over the seeds."""
        return [sum(of_seeds) / len(of_seeds) for of_seeds in self.losses]

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The combination with the least mean loss, or None if none is finite."""
        finite = [(mean, at) for at, mean in enumerate(self.means) if math.isfinite(mean)]
        return self.combinations[min(finite)[1]] if finite else None


def tune(grids: Mapping[str, Grid], cells: Sequence[Cell], failed: Container[Path]) -> dict[str, Choice]:
    """Method → what is chosen for it, from the cells of a comparison that were completed."""

    def losses(method: str, options: dict[str, Any]) -> list[float]:
        tried = [cell.folder for cell in cells if cell.method == method and cell.options == options]
        return [math.inf if folder in failed else validation_loss(folder) for folder in tried]

    of_methods = {method: combinations(grid) for method, grid in grids.items()}
    return {
        method: Choice(grids[method], tried, [losses(method, options) for options in tried])
        for method, tried in of_methods.items()
    }


def validation_loss(folder: Path) -> float:
    """The loss of the run in a folder, as said above."""
    return loss_of(read_events(folder))


def loss_of(events: Sequence[dict[str, Any]]) -> float:
    """The same of a run with these events; infinite if a client's is no number."""
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
