"""What the server tells a client with every message, so that a client needs to know nothing beforehand but its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from polyfed.data import Agreement, Federation, Split, Task
from polyfed.data.coding import SCALINGS
from polyfed.errors import ConfigError
from polyfed.experiments.building import build_federation, build_method
from polyfed.experiments.config import Config, DataConfig
from polyfed.methods import Method

FORMAT = 1
WHERE = "the study"


@dataclass(frozen=True)
class Brief:
    """The study, and where it stands.

    Attributes:
        study: a name that no other study has: a client keeps its state under it.
        config: the settings, as a file of settings has them.
        seed: of the run.
        agreed: what came of round 0; None while it is being found.
        members: all clients.
        round: the one that is played.
        rounds: that will be played in all.
        accepted: the round of the last update of this client that was used; 0 if none was.
        nodes: in a simulation, the folder below which all clients keep their state.
    """

    study: str
    config: dict[str, Any]
    seed: int
    agreed: dict[str, Any] | None = None
    members: tuple[str, ...] = ()
    round: int = 0
    rounds: int = 0
    accepted: int = 0
    nodes: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Brief:
        if described.get("format") != FORMAT:
            raise ConfigError(
                f"the server speaks format {described.get('format')!r}, this client {FORMAT}",
                where=WHERE,
                remedy="install the same version of polyfed on both",
            )
        fields: dict[str, Any] = {name: described[name] for name in cls.__dataclass_fields__}
        fields["members"] = tuple(fields["members"])
        return cls(**fields)

    def at(self, round: int, accepted: int) -> Brief:
        return replace(self, round=round, accepted=accepted)

    @property
    def settings(self) -> Config:
        return Config.model_validate(self.config)

    def method(self) -> Method:
        return build_method(self.settings, WHERE)

    def agreement(self) -> Agreement:
        if self.agreed is None:
            raise ConfigError("nothing is agreed yet", where=WHERE, remedy="ask for a description first")
        return Agreement.from_dict(self.agreed)


def chosen_split(data: DataConfig) -> Split:
    """The split of clients that bring their own tables."""
    given = {key: getattr(data, key) for key in ("test", "validation", "shots")}
    return Split(**{key: value for key, value in given.items() if value is not None})


def chosen_tasks(data: DataConfig) -> tuple[Task, ...]:
    """The tasks that the settings name, or those of the data set that they name."""
    if data.dataset is not None:
        return whole_federation(data.model_dump_json()).tasks
    if not data.tasks:
        raise ConfigError("there is no task", where=WHERE, remedy="name the columns to predict under data.tasks")
    return tuple(task.task() for task in data.tasks)


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
