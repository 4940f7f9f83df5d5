"""Which clients compute, and whose model serves a client. Each trains on its own data, but for a yardstick that pools them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyfed.data import ClientData, PreparedFederation
from polyfed.engine.rounds import FederationState
from polyfed.errors import ConfigError
from polyfed.methods import Method, State
from polyfed.methods.base import Predictor, Question
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

EVERYONE = "all clients together"


@dataclass(frozen=True, eq=False)
class Members:
    """The clients of a prepared federation as a method sees them."""

    method: Method
    prepared: PreparedFederation
    training: Mapping[str, ClientData]  # trainer → the data from which its updates are made
    own: Mapping[str, ClientData]  # trainer → all its training data, which its model may use in silence
    trainer: Mapping[str, str]  # client → the one whose model serves it
    seed: int  # of the run

    @classmethod
    def of(cls, method: Method, prepared: PreparedFederation, seed: int = 0) -> Members:
        own = {client: parts.train for client, parts in prepared.clients.items()}
        if not method.takes_weights and any(data.weights for data in own.values()):
            what, remedy = "labels have weights, which it does not know", "leave weights and class_weights out"
            raise ConfigError(what, where=f"method {method.name!r}", remedy=f"{remedy}, or choose another method")
        if not method.pools_data:
            shared = {client: prepared.shared(client) for client in own}
            return cls(method, prepared, shared, own, {client: client for client in own}, seed)
        if prepared.scaling == "local":
            what = f"method {method.name!r} puts all data together, but each client scales its own"
            raise ConfigError(what, remedy="use scaling='federated'")
        if method.needs_client:
            own = {client: named(own[client], position) for position, client in enumerate(sorted(own))}
        everyone = {EVERYONE: pooled(list(own.values()))}
        return cls(method, prepared, everyone, everyone, dict.fromkeys(own, EVERYONE), seed)

    @property
    def names(self) -> list[str]:
        return sorted(self.trainer)

    @property
    def silent(self) -> list[str]:
        """Clients whose limits let no label into an update."""
        return sorted(c for c, t in self.trainer.items() if self.own[t].n_labels and not self.training[t].n_labels)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return {client: position for position, client in enumerate(self.names)}

    def part(self, client: str, part: str) -> ClientData:
        return getattr(self.prepared.clients[client], part)

    def predictor(self, federation_state: FederationState, client: str) -> Predictor:
        """The model that serves a client; a silent client is served like one that joins late."""
        state, own = self.state(federation_state, client), self.own[self.trainer[client]]
        return self._asked_by(self.positions[client], self.method.predictor(federation_state.server, state, own))

    def state(self, federation_state: FederationState, client: str, personal: bool = True) -> State | None:
        """The state with which a client's model predicts; None for the server's model alone."""
        trainer = self.trainer[client]
        if not personal or trainer in federation_state.clients:
            return federation_state.clients[trainer] if personal else None
        data = self.own[trainer]
        if data.n_labels and not self.training[trainer].n_labels:
            return self.method.join(federation_state.server, data, Stream(self.seed, "join", client=client))
        return self.method.untrained(data)

    def predict(self, federation_state: FederationState, client: str, x: np.ndarray) -> Predictions:
        """Predictions of a client's model for these inputs, found from where training ended."""
        state, own = self.state(federation_state, client), self.own[self.trainer[client]]
        asked = Question(state, own, self.question(client, x))
        return self.method.predict_many(federation_state.server, [asked])[0]

    def question(self, client: str, x: np.ndarray) -> np.ndarray:
        return _with_position(x, self.positions[client]) if self.method.needs_client else x

    def with_everyone(self, data: ClientData) -> ClientData:
        """The data that a late client's model may use: its own, and those of all others where a method pools them."""
        if self.method.needs_client:
            data = named(data, len(self.names))
        return pooled([self.own[EVERYONE], data]) if self.method.pools_data else data

    def late_client(self, federation_state: FederationState, state: State, data: ClientData) -> Predictor:
        """The model that serves a client of no round, with these training data of its own."""
        predict = self.method.predictor(federation_state.server, state, self.with_everyone(data))
        return self._asked_by(len(self.names), predict)

    def _asked_by(self, position: int, predict: Predictor) -> Predictor:
        return (lambda x: predict(_with_position(x, position))) if self.method.needs_client else predict


def named(data: ClientData, position: int) -> ClientData:
    """The same rows with the position of their client as one more feature, the last."""
    return replace(data, x=_with_position(data.x, position))


def _with_position(x: np.ndarray, position: int) -> np.ndarray:
    return np.column_stack([x, np.full(len(x), float(position))])


def pooled(clients: list[ClientData]) -> ClientData:
    """All rows of all clients, as if they were one."""
    starts = np.cumsum([0, *(len(data.x) for data in clients)])
    joined = {}
    for task in dict.fromkeys(task for data in clients for task in data.labels):
        parts = [
            (data.labels[task], start) for data, start in zip(clients, starts, strict=False) if task in data.labels
        ]
        joined[task] = (
            np.concatenate([at + start for (at, _), start in parts]),
            np.concatenate([y for (_, y), _ in parts]),
        )
    weighted = [task for task in joined if any(task in data.weights for data in clients)]
    weights = {task: np.concatenate([data.weights_of(task) for data in clients]) for task in weighted}
    return ClientData(np.concatenate([data.x for data in clients]), joined, clients[0].codecs, weights=weights)
