"""Which data are this client's: a file that its node's config names, or its share of a study that is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.data import Description, Split, Task, describe
from polyfed.data.raw import RawClient
from polyfed.data.splits import Division, divide
from polyfed.data.tables import read_own_table
from polyfed.errors import DataError
from polyfed.experiments.building import digest
from polyfed.experiments.config import DataConfig
from polyfed.flower.brief import chosen_scaling, chosen_split, chosen_tasks, whole_federation


@dataclass(frozen=True, eq=False)
class OwnData:
    """A client's data before round 0, divided by the seed of the study."""

    name: str
    tasks: tuple[Task, ...]
    raw: RawClient
    division: Division
    scaling: str
    digest: str | None  # of the file; a study goes on with the data that it began with

    def description(self) -> Description:
        """What is told in round 0."""
        return describe(self.tasks, self.raw, self.division, scaling=self.scaling)

    @property
    def has_labels(self) -> bool:
        """Whether there is anything to learn from."""
        return any(len(labels.at) for labels in self.division.training(self.raw).labels.values())


def own_data(data: DataConfig, seed: int, node: Mapping[str, Any]) -> OwnData:
    """The data of the client with this node config."""
    tasks, scaling = chosen_tasks(data), chosen_scaling(data)
    split: Split
    if node.get("data"):
        path = file_of(node)
        name, raw = read_own_table(
            path,
            tasks,
            name=str(node["client"]) if node.get("client") else None,
            client=data.client,
            features=data.features,
            drop=data.drop,
            derive=data.derive,
        )
        if not raw.labels:
            names = ", ".join(repr(task.name) for task in tasks)
            raise DataError(f"has no column of any task ({names})", where=str(path), remedy="give the labels it has")
        split, mark = chosen_split(data), digest(path)
    elif "partition-id" in node and (data.source or data.dataset):
        federation = whole_federation(data.model_dump_json())
        name, split, mark = federation.names[int(node["partition-id"])], federation.split, None
        raw = federation.raw[name]
    else:
        raise DataError(
            "this node's config names no data",
            where="node config",
            remedy="start it with polyfed deploy node --data FILE, or --node-config 'data=\"FILE\"'",
        )
    return OwnData(name, tasks, raw, divide(tasks, raw, split, seed=seed, client=name), scaling, mark)


def file_of(node: Mapping[str, Any]) -> Path:
    path = Path(str(node["data"]))
    if not path.is_file():
        raise DataError("there is no such file", where=str(path), remedy="correct data in the node's config")
    return path
