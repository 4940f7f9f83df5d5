"""What a node's owner says, and nobody else: which table, whose it is, where states are kept, what may leave, what may run.

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
from typing import Any

from polyfed.data import DEPLOYED, OPEN, Limits
from polyfed.errors import ConfigError, DataError

WHERE = "node config"


@dataclass(frozen=True)
class OwnConfig:
    """A node's own configuration.

    Attributes:
        state: the folder below which the states of all studies are kept.
        data: its table; None in a simulation.
        client: its name, if it is not that of the file.
        limits: what leaves.
        allowed: code that studies may name.
        simulated: in a simulation, the settings of all clients' data as JSON, and which client this is.
    """

    state: Path
    data: Path | None = None
    client: str | None = None
    limits: Limits = DEPLOYED
    allowed: tuple[str, ...] = ()
    simulated: tuple[str, int] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> OwnConfig:
        """From the node config of Flower's SuperNode."""
        if not given.get("data"):
            raise DataError(
                "this node's config names no data",
                where=WHERE,
                remedy="start it with polyfed deploy node --data FILE, or --node-config 'data=\"FILE\"'",
            )
        data = Path(str(given["data"]))
        state = Path(str(given["state"])) if given.get("state") else data.resolve().parent / "polyfed-state"
        client = str(given["client"]) if given.get("client") else None
        limits = Limits(
            _whole(given, "min-rows", DEPLOYED.min_rows),
            _whole(given, "min-count", DEPLOYED.min_count),
        )
        allowed = tuple(name for name in str(given.get("allow-code", "")).split(",") if name)
        return cls(state, data, client, limits, allowed)

    @classmethod
    def in_simulation(cls, state: Path, data: str, position: int, limits: Limits = OPEN) -> OwnConfig:
        """Of a client whose data lie in one place with those of all others."""
        return cls(state, limits=limits, simulated=(data, position))

    @property
    def file(self) -> Path:
        """The table, which must be there."""
        if self.data is None or not self.data.is_file():
            raise DataError("there is no such file", where=str(self.data), remedy="correct data in the node's config")
        return self.data


def _whole(given: Mapping[str, Any], key: str, usual: int) -> int:
    value = given.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}", where=WHERE, remedy="give a whole number from 1 up")
    return value
