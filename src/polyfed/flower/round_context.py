"""What the server sends to a client with every message, so that a client needs to know nothing beforehand but its data."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from polyfed.data import Federation, Schema, Task
from polyfed.data.features.transforms import AUTO
from polyfed.data.schema.coding import SCALINGS
from polyfed.data.schema.vetting import Rejected, is_text, read_schema, shown
from polyfed.errors import ConfigError
from polyfed.experiments.building import build_federation, build_method
from polyfed.experiments.config import Config, DataConfig
from polyfed.experiments.reading import check
from polyfed.methods import Method
from polyfed.nets.permission import reject_code

FORMAT = 4
Note = dict[str, Any]  # what goes with the arrays of a message; of a node's, nothing but its form is known
WHERE = "the study"
STUDY = re.compile(r"[0-9a-f]{32}")
LARGEST = 2**63 - 1
_REMEDY = "ask whoever runs the server"


@dataclass(frozen=True)
class RoundContext:
    study: str  # a name that no other study has: a client keeps its state under it
    document: dict[str, Any]  # the settings, as a config file has them
    seed: int
    agreed: dict[str, Any] | None = None  # what came of round 0; None while it is being found
    members: tuple[str, ...] = ()  # all clients
    round: int = 0  # the current one
    rounds: int = 0  # planned in all
    accepted: int = 0  # the round of the last update of this client that was used; 0 if none was

    def __post_init__(self) -> None:
        # A client keeps its state in a folder of this name, so it must be one and no path.
        if not isinstance(self.study, str) or not STUDY.fullmatch(self.study):
            raise _odd("study", self.study, "the name of a study is 32 digits of 0-9 and a-f")
        for name in ("seed", "round", "rounds", "accepted"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
                raise _odd(name, value, "it is a whole number")
        if not isinstance(self.document, dict):
            raise _odd("document", self.document, "it is an object")
        if not isinstance(self.members, tuple) or not all(map(is_text, self.members)):
            raise _odd("members", self.members, "they are names")

    def to_dict(self) -> dict[str, object]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, described: Mapping[str, object]) -> RoundContext:
        if described.get("format") != FORMAT:
            what = f"the server speaks format {described.get('format')!r}, this client {FORMAT}"
            raise ConfigError(what, where=WHERE, remedy="install the same version of polyfed on both")
        known = cls.__dataclass_fields__
        for name in described:
            if name not in (*known, "format"):
                raise _odd(name, described[name], "nobody asked for it")
        for name in known:
            if name not in described:
                raise _odd(name, None, "it is missing")
        fields: dict[str, Any] = {name: described[name] for name in known}
        if isinstance(fields["members"], list):
            fields["members"] = tuple(fields["members"])
        return cls(**fields)

    def at(self, round: int, accepted: int) -> RoundContext:
        return replace(self, round=round, accepted=accepted)

    @property
    def config(self) -> Config:
        return check(self.document, WHERE)

    def method(self, allowed: Collection[str] = ()) -> Method:
        """The method; code that it names runs only if it is allowed here."""
        config = self.config
        reject_code(config.method.options, allowed, where=WHERE, paths=False)
        return build_method(config, WHERE)

    def agreement(self) -> Schema:
        if self.agreed is None:
            raise ConfigError("nothing is agreed yet", where=WHERE, remedy="ask for a description first")
        try:
            return read_schema(self.agreed)
        except Rejected as reason:
            raise ConfigError(f"what was agreed cannot be used: {reason}", where=WHERE, remedy=_REMEDY) from None


def _odd(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{shown(name)} is {shown(value)}, but {wanted}", where=WHERE, remedy=_REMEDY)


def reject_sources(data: DataConfig) -> None:
    """An error if a server chooses more than columns of a node's table: never which table."""
    for key in ("source", "query", "dataset", "sha256", "options", "images"):
        if getattr(data, key):
            what = f"the server chooses data.{key}, but a node reads its own table alone"
            raise ConfigError(what, where=WHERE, remedy=_REMEDY)


def chosen_tasks(data: DataConfig) -> tuple[Task, ...]:
    """The tasks that the settings name, or those of the data set that they name."""
    if data.dataset is not None:
        return whole_federation(data.model_dump_json()).tasks
    if not data.tasks:
        raise ConfigError("there is no task", where=WHERE, remedy="name the columns to predict under data.tasks")
    if AUTO in data.transform.values():
        what = f"data.transform is {AUTO!r}, but no machine has the rows to choose by"
        raise ConfigError(what, where=WHERE, remedy='write for example income = "rank"')
    return data.all_tasks()


def chosen_scaling(data: DataConfig) -> str:
    if data.scaling is not None and data.scaling not in SCALINGS:
        raise ConfigError(f"scaling {data.scaling!r} is not known", where=WHERE, remedy=f"choose one of {SCALINGS}")
    if data.dataset is not None:
        return whole_federation(data.model_dump_json()).scaling
    return data.scaling or "federated"


@lru_cache(maxsize=4)
def whole_federation(data: str) -> Federation:
    """All clients of the data that these settings (as JSON) name: for simulations, where they are in one place."""
    return build_federation(DataConfig.model_validate_json(data), WHERE)
