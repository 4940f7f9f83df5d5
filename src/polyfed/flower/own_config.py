"""What a node's owner says, and nobody else: which table, whose it is, where states are kept, what may leave, what may run;
and the data that come of it.

No path and no limit comes from a server. Its messages name a study, by a pattern that leads nowhere else on a disk, and the
settings of one; a study may ask for stricter limits than the owner's, never for laxer ones.

>>> own = OwnConfig.of({"data": "/data/basel.csv", "min-rows": 20})
>>> own.limits, own.state
(Limits(min_rows=20, min_count=5), PosixPath('/data/polyfed-state'))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyfed.data import DEPLOYED, ClientSummary, Limits, Split, Task, describe
from polyfed.data.raw import RawClient
from polyfed.data.splits import Division, divide
from polyfed.data.tables.reading import TableReader
from polyfed.errors import ConfigError, DataError
from polyfed.experiments.building import digest
from polyfed.experiments.config import DataConfig
from polyfed.flower.round_context import chosen_scaling, chosen_tasks, reject_sources, whole_federation

WHERE = "node config"
NodeConfig = Mapping[str, bool | int | float | str]  # as Flower has it


@dataclass(frozen=True)
class OwnConfig:
    state: Path  # the folder below which the states of all studies are kept
    data: Path | None = None  # its table; None in a simulation
    client: str | None = None  # its name, if it is not that of the file
    limits: Limits = DEPLOYED  # what leaves
    allowed: tuple[str, ...] = ()  # code that studies may name
    # In a simulation, the settings of all clients' data as JSON, and which client this is.
    simulated: tuple[str, int] | None = None

    @classmethod
    def of(cls, given: NodeConfig) -> OwnConfig:
        """From the node config of Flower's SuperNode."""
        if not given.get("data"):
            remedy = "start it with polyfed deploy node --data FILE, or --node-config 'data=\"FILE\"'"
            raise DataError("this node's config names no data", where=WHERE, remedy=remedy)
        data = Path(str(given["data"]))
        state = Path(str(given["state"])) if given.get("state") else data.resolve().parent / "polyfed-state"
        client = str(given["client"]) if given.get("client") else None
        least = _whole(given, "min-rows", DEPLOYED.min_rows), _whole(given, "min-count", DEPLOYED.min_count)
        allowed = tuple(name for name in str(given.get("allow-code", "")).split(",") if name)
        return cls(state, data, client, Limits(*least), allowed)

    @property
    def file(self) -> Path:
        if self.data is None or not self.data.is_file():
            raise DataError("there is no such file", where=str(self.data), remedy="correct data in the node's config")
        return self.data


def _whole(given: NodeConfig, key: str, usual: int) -> int:
    value = given.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}", where=WHERE, remedy="give a whole number from 1 up")
    return value


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
        return describe(self.tasks, self.raw, self.division, scaling=self.scaling, limits=self.limits)


def own_data(data: DataConfig, seed: int, own: OwnConfig) -> OwnData:
    """The data of the client with this config, as a study asks for them."""
    split: Split
    if own.simulated is not None:
        source, position = own.simulated
        federation = whole_federation(source)
        name, tasks, scaling = federation.names[position], federation.tasks, federation.scaling
        raw, split, mark, limits = federation.raw[name], federation.split, None, federation.limits
    else:
        reject_sources(data)
        tasks, scaling, path = chosen_tasks(data), chosen_scaling(data), own.file
        columns = {key: getattr(data, key) for key in ("features", "drop", "derive", "missing", "transform", "weights")}
        name, raw = TableReader(tasks, split=data.split(), **columns).own(path, name=own.client, client=data.client)
        if not raw.labels:
            names = ", ".join(repr(task.name) for task in tasks)
            raise DataError(f"has no column of any task ({names})", where=path, remedy="give the labels it has")
        split, mark, limits = data.split(), digest(path), data.limits
    division = divide(tasks, raw, split, seed=seed, client=name)
    return OwnData(name, tasks, raw, division, scaling, own.limits.at_least(limits), mark)
