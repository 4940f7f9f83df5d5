"""In which scale a skewed column is best taken: as it is, its logarithm, or (of an input) its rank among all clients' values.

Rows that are not for testing choose, and test rows are not looked at: some of them are held out, the method is run for a few
rounds with each scale in turn, and the least loss on what was held out wins (`tuning`: the log loss in nats, summed over the
tasks). Columns are settled one after the other, each beside what was chosen before it. A scale must gain LEAST_GAIN over the
column as it is: less than that is chance. Densities of a logarithm are compared in units of the target itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from polyfed.data import Federation
from polyfed.data.features import transforms
from polyfed.data.labels.column import Labels
from polyfed.data.splits import divide
from polyfed.errors import ConfigError, PolyfedError, nearest
from polyfed.experiments.building import build_federation, build_method, build_settings
from polyfed.experiments.config import Config
from polyfed.experiments.guessing import is_skewed, is_skewed_target
from polyfed.experiments.tuning import loss_of
from polyfed.kinds import LabelForm
from polyfed.seeds import Stream

AS_IT_IS = "none"
ROUNDS = 5  # enough to compare scales; the run itself goes on from nothing
HELD_OUT = 0.25  # the share of a client's rows, without those for testing
MOST_CLIENTS, MOST_ROWS = 50, 200  # that choose, so that a choice costs less than the run
MOST_TRIED = 6  # skewed columns, if nobody says which
LEAST_GAIN = 0.01  # nats


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
