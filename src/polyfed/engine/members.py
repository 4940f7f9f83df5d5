"""Who computes and who is served. Each client trains on its own data, except under the yardstick that pools them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from polyfed.data import ClientData, Study
from polyfed.engine.rounds import Progress
from polyfed.errors import ConfigError
from polyfed.methods import Method
from polyfed.methods.base import Predictor

EVERYONE = "all clients together"


@dataclass(frozen=True, eq=False)
class Members:
    """The clients of a study as a method sees them.

    Attributes:
        training: who computes → its training data.
        trainer: client → whose model serves it.
    """

    study: Study
    training: Mapping[str, ClientData]
    trainer: Mapping[str, str]

    @classmethod
    def of(cls, method: Method, study: Study) -> Members:
        own = {client: parts.train for client, parts in study.clients.items()}
        if not method.pools_data:
            return cls(study, own, {client: client for client in own})
        if study.scaling == "local":
            raise ConfigError(
                f"method {method.name!r} puts all data together, but each client scales its own",
                remedy="use scaling='federated'",
            )
        return cls(study, {EVERYONE: pooled(list(own.values()))}, dict.fromkeys(own, EVERYONE))

    @property
    def names(self) -> list[str]:
        return sorted(self.trainer)

    def part(self, client: str, part: str) -> ClientData:
        return getattr(self.study.clients[client], part)

    def predictor(self, method: Method, progress: Progress, client: str, *, personal: bool = True) -> Predictor:
        """The model that serves a client."""
        trainer = self.trainer[client]
        state = progress.clients.get(trainer) if personal else None
        return method.predictor(progress.server, state, self.training[trainer])

    def with_everyone(self, method: Method, data: ClientData) -> ClientData:
        """What a newcomer's model may see: its own data, and those of all others where a method pools them."""
        return pooled([self.training[EVERYONE], data]) if method.pools_data else data


def pooled(clients: list[ClientData]) -> ClientData:
    """All rows of all clients, as if they were one."""
    seen: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    n_inputs = 0
    for data in clients:
        for task, (at, y) in data.seen.items():
            seen.setdefault(task, []).append((at + n_inputs, y))
        n_inputs += len(data.x)
    joined = {
        task: (np.concatenate([at for at, _ in parts]), np.concatenate([y for _, y in parts]))
        for task, parts in seen.items()
    }
    return ClientData(np.concatenate([data.x for data in clients]), joined, clients[0].codecs)
