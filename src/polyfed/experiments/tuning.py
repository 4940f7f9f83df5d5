"""A grid: for a method, the values to try of some of its options. Every combination is a run, in a folder of its own.

Validation rows choose the combination that a method is judged by, and the test rows are not looked at.
The loss of a run is the log loss of its personal models on the validation rows after the last round, in nats: the mean
over the clients of each task (`Kind.loss`), summed over the tasks. Other units of a target add the same number
to the loss of every combination, so the sum needs no weights: no unit makes a task count for more than another.
One combination is chosen for all seeds, that with the least mean over them; of equal ones the first. A combination counts
only if it has a finite loss with every seed: one that fails or diverges somewhere is never chosen.

The scale of a skewed column is chosen likewise: as it is, its logarithm, or (of an input) its rank among all clients' values.
Some of the rows that are not for testing are held out, the method is run for a few rounds with each scale in turn, and the
least loss on what was held out wins. Columns are settled one after the other, each beside what was chosen before it. A scale
must gain LEAST_GAIN over the column as it is: less than that is chance. Densities of a logarithm are compared in units of the
target itself.

>>> combinations({"learning_rate": [0.1, 0.01], "hidden": [[32], [64, 64]]})[1]
{'learning_rate': 0.1, 'hidden': [64, 64]}
>>> folder_name("fedavg", {"learning_rate": 0.1, "hidden": [64, 64]}, seed=0), folder_name("fedavg", {}, seed=0)
('fedavg-learning_rate=0.1-hidden=64,64-0', 'fedavg-0')
>>> choice = Choice({"learning_rate": [0.1, 0.01]}, [[3, 4], [1, 5]])
>>> choice.means, choice.chosen
([3.5, 3.0], {'learning_rate': 0.01})
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data import Federation
from polyfed.data.features import transforms
from polyfed.data.labels.column import Labels
from polyfed.data.splits import divide
from polyfed.errors import ConfigError, PolyfedError, nearest
from polyfed.experiments.building import build_federation, build_method, build_settings
from polyfed.experiments.config import CompareConfig, Config
from polyfed.experiments.guessing import is_skewed, is_skewed_target
from polyfed.folders.lines import Event, read_events
from polyfed.kinds import KINDS, LabelForm
from polyfed.seeds import Stream

if TYPE_CHECKING:
    from polyfed.experiments.comparing import Cell

ALL = "all"  # in place of a method: every method that has the option
AS_IT_IS = "none"
ROUNDS = 5  # enough to compare scales; the run itself goes on from nothing
HELD_OUT = 0.25  # the share of a client's rows, without those for testing
MOST_CLIENTS, MOST_ROWS = 50, 200  # that choose, so that a choice costs less than the run
MOST_TRIED = 6  # skewed columns, if nobody says which
LEAST_GAIN = 0.01  # nats
MOST_LETTERS = 100  # of the values in the name of a folder

Grid = dict[str, list[Any]]  # option → its values
Options = dict[str, Any]


def grids(compare: CompareConfig, where: str) -> dict[str, Grid]:
    """Method → its grid, of the methods that are compared and have one; what is set for `all` a method's own replaces."""
    from polyfed.methods import known_methods

    methods = known_methods()
    for name, grid in compare.grid.items():
        place = f"{where}, compare.grid.{name}"
        if name != ALL and name not in methods:
            raise ConfigError("is no method", where=place, remedy=nearest(name, [*methods, ALL]))
        for option, values in grid.items():
            if _twice(values):
                raise ConfigError("a value is given twice", where=f"{place}.{option}", remedy="give each once")
    without = lacking(compare)
    for option, lack in without.items():
        if len(lack) == len(compare.methods):
            known = dict.fromkeys(name for method in compare.methods for name in _options(method))
            place = f"{where}, compare.grid.{ALL}.{option}"
            raise ConfigError("is an option of none of the methods", where=place, remedy=nearest(option, known))
    shared = compare.grid.get(ALL, {})
    known = {m: {o: values for o, values in shared.items() if m not in without[o]} for m in compare.methods}
    found = {method: {**usual, **compare.grid.get(method, {})} for method, usual in known.items()}
    return {method: grid for method, grid in found.items() if grid}


def lacking(compare: CompareConfig) -> dict[str, list[str]]:
    """Option of `all` → the methods that are compared and do not have it."""
    return {o: [m for m in compare.methods if o not in _options(m)] for o in compare.grid.get(ALL, {})}


def combinations(grid: Grid) -> list[Options]:
    """Each value of each option with each of the others; of no grid the one with nothing in it."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def written(options: Options) -> str:
    """
    >>> written({"hidden": [64, 64], "kernel": "rbf"})
    'hidden=64,64, kernel=rbf'
    """
    return ", ".join(f"{option}={_word(value)}" for option, value in options.items())


def folder_name(method: str, options: Options, seed: int) -> str:
    """<method>-<option>=<value>-<seed>: of these values alone, so that a grid can grow in the same folder."""
    text = "".join(f"-{option}={_word(value)}" for option, value in options.items())
    safe = re.sub(r"[^A-Za-z0-9.,+=_-]", "_", text)[:MOST_LETTERS]
    if safe != text:  # two values that look alike when written so are still two
        safe = f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{method}{safe}-{seed}"


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_word, value)) + ("," if len(value) == 1 else "")
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _twice(values: Sequence[object]) -> bool:
    """Also values that would share a folder, as 32 and "32" do."""
    return any(value in values[:i] for i, value in enumerate(values)) or len({*map(_word, values)}) < len(values)


def _options(method: str) -> list[str]:
    from polyfed.methods import known_methods

    made = known_methods().get(method)
    return [option.name for option in fields(made)] if is_dataclass(made) else []


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


@dataclass(frozen=True)
class Scale:
    """A column, the loss with each scale that was tried, and the scale that was chosen."""

    column: str
    losses: Mapping[str, float]
    chosen: str


def settled(config: Config, where: str, on_trial: Callable[[int], None] | None = None) -> tuple[Config, list[Scale]]:
    """The settings with a scale in place of every `auto`, and what was tried; `on_trial` hears how many runs there will be."""
    given = config.data.transform
    named = [name for name, how in given.items() if how == transforms.AUTO]
    if config.data.source is None or not named:  # data sets bring their own, and reject
        return config, []
    fixed = {name: how for name, how in given.items() if how != transforms.AUTO}
    config = config.model_copy(update={"data": config.data.model_copy(update={"transform": fixed})})
    federation = _few(build_federation(config.data, where), config.run.seed)
    inputs, targets = _candidates(federation, named, where)
    tried = [(name, (AS_IT_IS, *transforms.TRANSFORMS)) for name in inputs] + [
        (name, (AS_IT_IS, "log")) for name in targets
    ]
    if tried and on_trial is not None:
        on_trial(1 + sum(len(scales) - 1 for _, scales in tried))
    best: dict[str, str] = {}
    least, found = np.inf, []
    for name, scales in tried:
        losses = {AS_IT_IS: least} if found else {}  # of the run that won before
        for scale in scales:
            if scale not in losses:
                losses[scale] = _loss(config, where, federation, {**best, name: scale}, fixed)
        chosen = min(losses, key=lambda scale: losses[scale] + LEAST_GAIN * (scale != AS_IT_IS))
        best[name], least = chosen, losses[chosen]
        found.append(Scale(name, losses, chosen))
    # The settings as if they had been written so: inputs by `transform`, targets by `derive`.
    data, logs = config.data, {name for name in targets if best[name] == "log"}
    transform = {name: how for name, how in best.items() if how in transforms.TRANSFORMS and name not in targets}
    renamed = [t.model_copy(update={"name": f"log_{t.name}"}) if t.name in logs else t for t in data.tasks]
    derived = {f"log_{name}": f"log(`{name}`)" for name in best if name in logs}
    changes = {"transform": {**fixed, **transform}, "derive": {**data.derive, **derived}, "tasks": renamed}
    return config.model_copy(update={"data": data.model_copy(update=changes)}), found


def _few(federation: Federation, seed: int) -> Federation:
    """Clients and rows that choose: none that is for testing."""
    names = federation.names[:: -(-len(federation.names) // MOST_CLIENTS)]
    raw = {}
    for name in names:
        whole = federation.raw[name]
        division = divide(federation.tasks, whole, federation.split, seed=seed, client=name)
        rows = np.setdiff1d(np.arange(len(whole)), division.test)
        if len(rows) > MOST_ROWS:
            rows = np.sort(Stream(seed, "scales", client=name).numpy().choice(rows, MOST_ROWS, replace=False))
        raw[name] = replace(whole.take(rows), keys={role: values[rows] for role, values in whole.keys.items()})
    split = replace(federation.split, test=0.0, validation=HELD_OUT, column=None)
    return replace(federation, raw=raw, split=split, truth=None)


def _candidates(federation: Federation, named: list[str], where: str) -> tuple[list[str], list[str]]:
    """The inputs and the targets whose scale is to be chosen: those that are named, and the skewed ones if all are."""
    clients = list(federation.raw.values())
    numbers = clients[0].features.number_names
    of_numbers = [task.name for task in federation.tasks if task.form is LabelForm.NUMBER]
    targets = {t: np.concatenate([c.labels[t].values for c in clients if t in c.labels]) for t in of_numbers}
    wanted = [name for name in named if name != transforms.ALL]
    if transforms.ALL in named:
        free = [name for name in numbers if name not in (*clients[0].features.transform, *wanted)]
        skewed = [name for name in free if is_skewed(np.concatenate([c.features.column(name) for c in clients]))]
        wanted += [*skewed[:MOST_TRIED], *(name for name, values in targets.items() if is_skewed_target(values))]
    for name in wanted:
        if name not in numbers and name not in targets:
            what = f"column {name!r} has no scale to choose: it is neither an input nor a target that is a number"
            raise ConfigError(what, where=where, remedy=nearest(name, [*numbers, *targets]))
        if name in targets and not (targets[name] > 0).all():
            raise ConfigError(
                f"target {name!r} has values that are not above 0, and no logarithm", where=where, remedy="leave it out"
            )
    return [name for name in wanted if name in numbers], [name for name in wanted if name in targets]


def _loss(
    config: Config, where: str, federation: Federation, scales: Mapping[str, str], fixed: Mapping[str, str]
) -> float:
    """The loss on held-out rows of a short run with these scales; infinite if it fails."""
    from polyfed.engine import simulate

    logs = {task.name for task in federation.tasks if scales.get(task.name) == "log"}
    transform = {
        **fixed,
        **{name: how for name, how in scales.items() if how in transforms.TRANSFORMS and name not in logs},
    }
    raw = {}
    for name, client in federation.raw.items():
        in_logs = {t: Labels(own.at, np.log(own.values), None) for t, own in client.labels.items() if t in logs}
        features = replace(client.features, transform=transform)
        raw[name] = replace(client, features=features, labels={**client.labels, **in_logs})
    short = config.run.model_copy(update={"rounds": min(ROUNDS, config.run.rounds), "sample": None, "stop": "none"})
    settings = build_settings(config.model_copy(update={"run": short}), where)
    try:
        run = simulate(build_method(config, where), replace(federation, raw=raw), **settings.to_dict())
    except PolyfedError:
        return np.inf
    loss = loss_of(run.events)
    for task in logs:  # p(y) = p(log y) / y: add the mean over the clients of their mean label that was held out
        held_out = [parts.validation for parts in run.prepared.clients.values() if task in parts.validation.labels]
        means = [part.codecs[task].decode(part.labels[task][1]).mean() for part in held_out]
        loss += float(np.mean(means)) if means else 0.0
    return loss
