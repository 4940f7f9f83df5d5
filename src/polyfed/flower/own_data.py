"""Which data are this client's: a file that its node's config names, or its share of a study that is simulated."""

from __future__ import annotations

from dataclasses import dataclass

from polyfed.data import ClientSummary, Limits, Split, Task, describe
from polyfed.data.raw import RawClient
from polyfed.data.splits import Division, divide
from polyfed.data.tables.reading import TableReader
from polyfed.errors import DataError
from polyfed.experiments.building import digest
from polyfed.experiments.config import DataConfig
from polyfed.flower.own_config import OwnConfig
from polyfed.flower.round_context import chosen_scaling, chosen_tasks, own_prepared, whole_federation


@dataclass(frozen=True, eq=False)
class OwnData:
    """A client's data before round 0, divided by the seed of the study."""

    name: str
    tasks: tuple[Task, ...]
    raw: RawClient
    division: Division
    scaling: str
    limits: Limits
    digest: str | None  # of the file; a study goes on with the data that it began with

    def summary(self) -> ClientSummary:
        """What is sent in round 0."""
        return describe(self.tasks, self.raw, self.division, scaling=self.scaling, limits=self.limits)


def own_data(asked: DataConfig, seed: int, own: OwnConfig) -> OwnData:
    """The data of the client with this config, as a study asks for them."""
    split: Split
    if own.simulated is not None:
        source, position = own.simulated
        federation = whole_federation(source)
        name, tasks, scaling = federation.names[position], federation.tasks, federation.scaling
        raw, split, mark, limits = federation.raw[name], federation.split, None, federation.limits
    else:
        data = own_prepared(asked)
        tasks, scaling, path = chosen_tasks(data), chosen_scaling(data), own.file
        reader = TableReader(
            tasks,
            features=data.features,
            drop=data.drop,
            derive=data.derive,
            missing=data.missing,
            split=data.split(),
            transform=data.transform,
            weights=data.weights,
        )
        name, raw = reader.own(path, name=own.client, client=data.client)
        if not raw.labels:
            names = ", ".join(repr(task.name) for task in tasks)
            raise DataError(f"has no column of any task ({names})", where=str(path), remedy="give the labels it has")
        split, mark, limits = data.split(), digest(path), data.limits
    division = divide(tasks, raw, split, seed=seed, client=name)
    return OwnData(name, tasks, raw, division, scaling, own.limits.at_least(limits), mark)
