"""The contract of a method. A method is options and pure functions: all that it remembers is in states it returns.

    server = method.init(spec, stream)                          what the server starts from
    own    = method.start(data, stream)                         what a client starts from
    ──── every round ────
    server      = method.begin_round(server, rounds_left)       as it is, for nearly all methods
    sent        = method.broadcast(server, client)               server → client
    own, update = method.local(own, sent, data, stream)         on the client, with its private data
    reason      = method.objection(server, update)              on the server, beside its own checks (engine/validation.py)
    server      = method.aggregate(server, {client: update})    on the server
    ──── at any time ────
    predict = method.predictor(server, own, data);  predict(x)  own=None: the server's model alone
    own     = method.join(server, data, stream)                 a client that no round has seen

A method does not know who runs it, and keeps nothing to itself: states are flat dictionaries of arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import in_words
from polyfed.methods.messages import ClientUpdate, State
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

Explanation = dict[str, Any]  # plain lists and numbers
# Encoded features (rows, features) → predictions of every task
Predictor = Callable[[np.ndarray], Predictions]


@dataclass(frozen=True, eq=False)
class Job:
    """One client's turn in a round."""

    client: str
    state: State
    message: State
    data: ClientData
    stream: Stream


ClientResult = tuple[State, ClientUpdate] | Exception


@dataclass(frozen=True, eq=False)
class Question:
    """What the model of a client with this state and these training data says of `x`; as for `Method.predictor`."""

    state: State | None
    data: ClientData
    x: np.ndarray


@dataclass(frozen=True)
class Outlook:
    """What is ahead of a client.

    Attributes:
        operations: floating-point operations of its work in a round; zero where nobody knows.
        measuring: and of finding the model that is measured after it.
        inducing: how many inducing inputs stand for rows that are too many for an exact model, if nobody asked for them.
        fits: whether memory would hold that model, so that only time speaks against it.
        exact: of the operations, those that inducing inputs would spare.
    """

    operations: float = 0.0
    measuring: float = 0.0
    inducing: int | None = None
    fits: bool = True
    exact: float = 0.0

    def __add__(self, other: Outlook) -> Outlook:
        inducing = max(self.inducing or 0, other.inducing or 0) or None
        operations, measuring = self.operations + other.operations, self.measuring + other.measuring
        return Outlook(operations, measuring, inducing, self.fits and other.fits, self.exact + other.exact)


class Method(ABC):
    """One federated method. Subclasses are frozen dataclasses whose fields are the options."""

    name: ClassVar[str]
    summary: ClassVar[str]  # a line for users who choose
    pools_data: ClassVar[bool] = False  # True for the yardstick that is no federation at all
    needs_client: ClassVar[bool] = False  # of one that pools: a row's last feature is then the position of its client
    kinds: ClassVar[tuple[str, ...] | None] = None  # of the tasks that it serves; None for all

    @property
    def takes_weights(self) -> bool:
        """Whether labels may count more or less (`ClientData.weights`); a method that does not look at them must say no."""
        return False

    @property
    def personalises(self) -> bool:
        """Whether a client's own model differs from what the server alone would give it."""
        return True

    @property
    def needs_last_state(self) -> bool:
        """Whether an update is the change of something that the server sums up: then only a client that still has the state of
        its last update may send another, for what it sends anew would be counted twice."""
        return False

    @abstractmethod
    def init(self, spec: FederationSpec, stream: Stream) -> State:
        """The server's state before the first round; `stream` is the same for everyone."""

    def start(self, data: ClientData, stream: Stream) -> State:
        """A client's state before its first round; `stream` is the same for everyone."""
        return {}

    @property
    def needs_last_round(self) -> bool:
        """Whether something is learned in the last round alone (`begin_round`), so that a run must not end before it."""
        return False

    def begin_round(self, server: State, rounds_left: int) -> State:
        """The server's state as a round begins, `rounds_left` before the last; all of the round goes by it."""
        return server

    @abstractmethod
    def broadcast(self, server: State, client: str) -> State:
        """What the server sends to a client."""

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        """What the server sends to each of several clients; where that is the same for all, it may be made once."""
        return [self.broadcast(server, client) for client in clients]

    @abstractmethod
    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        """A client's work in a round: its next state, which stays with it, and the update that leaves it."""

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        """The work of several clients, which a method may do faster together. One that fails hands over its error."""
        return [self._attempt(job) for job in jobs]

    @abstractmethod
    def template(self, server: State) -> ClientUpdate:
        """An update with the names, shapes and types that the server expects; its values do not matter."""

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        """Why this update cannot be used, if only the method can tell; a short sentence without the client's name.

        The engine asks after its own checks: names, shapes and types are those of `template`, all numbers are finite, and
        no count is above what the client declared in round 0. An update that is objected to is rejected as any other bad
        one, and so is one at which this raises.
        """
        return None

    def objections(self, server: State, updates: Sequence[ClientUpdate]) -> list[str | None]:
        """The same for several updates, which a method may look at faster together."""
        return [self.objection(server, update) for update in updates]

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        """The tasks whose labels this pooled statistic counts: a count above what a client has of them is rejected.

        None for a count that is no number of labels: such a one is held to what is usual per label, under any rule of
        aggregation but the exact mean.
        """
        return list(self.template(server).counts)

    def is_evidence(self, name: str) -> bool:
        """Whether this array of updates adds up as evidence does (counts, sums of statistics, natural parameters).

        Rules of aggregation (clip, median, ...) compare changes and gradients, of which any one client's may be shortened;
        evidence of many labels is rightly larger than that of few, so they leave it as it is, and what is wrong with it is
        for `objection` to say.
        """
        return False

    @abstractmethod
    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        """The server's next state from the updates of at least one client, in any order."""

    @abstractmethod
    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """The model of a client with this state and these training data; `None`: with what the server has alone."""

    def predict_many(self, server: State, questions: Sequence[Question]) -> list[Predictions]:
        """What the predictors of several clients say, which a method may find faster together or from where training ended."""
        return [self.predictor(server, asked.state, asked.data)(asked.x) for asked in questions]

    def untrained(self, data: ClientData) -> State | None:
        """The state with which a member is served whose updates counted in no round; `None`: by what the server has alone."""
        return None

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """The state of a client that took part in no round, from its own data and what the server has."""
        return self.start(data, stream)

    def prediction_state(self, server: State, client: str) -> State:
        """What of the server's state a client needs for its predictor and may have: this is sent to it and stays there."""
        return server

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        """What the next round will cost this client."""
        return Outlook()

    def explain(self, server: State, data: ClientData) -> Explanation:
        """What the server has learned, for people; `data` of any client says which tasks there are."""
        return {}

    def _attempt(self, job: Job) -> ClientResult:
        try:
            return self.local(job.state, job.message, job.data, job.stream)
        except Exception as error:  # whatever breaks at one client must not end the round of the others
            return in_words(error)
