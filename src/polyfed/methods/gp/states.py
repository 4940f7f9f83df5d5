"""What servers and clients of pFed-Mul and pfed-hier remember and send, and under which keys: no other file spells one.

States of clients that were solved together stay stacked from one round to the next. Who looks at one sees an
ordinary dictionary of arrays; who wants those of many asks `States`, and where the same clients come again in the same order,
nothing is taken apart and nothing is put together.

>>> batch = StateBatch(ClientColumns({"noise.pulse": torch.tensor([1.0, 2.0])}))
>>> states = [BatchedState(batch, i) for i in (0, 1)]
>>> states[1]["personal/noise.pulse"], States(states).stacked().personal
(tensor(2.), {'noise.pulse': tensor([1., 2.])})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from polyfed.gp import BatchStep, Evidence
from polyfed.methods.messages import State
from polyfed.methods.typed_state import TypedState, key, nested, record, under
from polyfed.methods.update_batch import Change

if TYPE_CHECKING:
    from polyfed.methods.gp.clients import Starts


class Moments(TypedState):
    """What Adam remembers, and quasi-Newton steps beside it."""

    steps: Tensor = key("steps")
    first: State = under("first.")
    second: State = under("second.")
    passes: Tensor | None = key("passes")  # over all clients, where rates are halved
    pairs_s: Tensor = key("pairs.s")  # the last changes of Θ, oldest first
    pairs_y: Tensor = key("pairs.y")  # and of the gradient's opposite
    last_value: Tensor = key("last.value")  # Θ in the round before
    last_slope: Tensor = key("last.slope")  # its gradient
    last_who: Tensor = key("last.who")  # a number for the clients behind it


class Served(TypedState):
    """What of the server's state clients predict with."""

    theta: State = under("theta/")  # shared, and learned by steps
    pooled: State = under("pooled/")  # shared noise with a closed form
    initial: State = under("initial/")  # what everyone starts from, of personal groups
    strengths: State = under("strength/")  # log ν of noise levels that clients have for themselves (server_step.py)
    draws: State = under("draw/")  # of Θ (theta_draws.py), with a leading dimension
    sums: Evidence | None = record("evidence/", Evidence)  # of all clients, of the shared functions (pfed_hier.py)
    points: Tensor | None = key("shared/Z")  # that these go through

    @property
    def values(self) -> State:
        return {**self.initial, **self.theta, **self.pooled}


class Server(Served):
    """And what is no client's business when it predicts."""

    optimiser: Moments = nested("adam/", Moments)
    densities: State = under("density/")  # the prior of Θ (server_step.py)
    n_clients: Tensor | None = key("clients")
    agreements: State = under("agreement/")  # of held-out labels with the others (feature_learning.py)
    starting: Tensor | None = key("starting")  # while the round is for the start of projections
    curving: Tensor | None = key("curving")  # while second derivatives are asked for (theta_draws.py)
    widths: State = under("width/")  # of the prior of what is drawn
    normals: Tensor | None = key("normals")  # behind the draws
    limits: State = under("limit/")  # of evidence (evidence_limits.py)


class Broadcast(TypedState):
    theta: State = under("")  # the shared part of it, noise included
    strengths: State = under("strength/")
    starting: Tensor | None = key("starting")
    curving: Tensor | None = key("curving")
    sums: Evidence | None = record("evidence/", Evidence)
    points: Tensor | None = key("shared/Z")

    @classmethod
    def of(cls, server: Server) -> Broadcast:
        theta = {**server.theta, **server.pooled}
        return cls(theta, server.strengths, server.starting, server.curving, server.sums, server.points)

    @classmethod
    def stacked(cls, messages: Sequence[Mapping[str, Tensor]]) -> Broadcast:
        """Those of many clients, with a leading dimension; what is one tensor for all of them is not copied."""
        one = all(message is messages[0] for message in messages)

        def column(name: str, first: Tensor) -> Tensor:
            values = [] if one else [message[name] for message in messages]
            same = all(value is first for value in values)
            return first.expand(len(messages), *first.shape) if same else torch.stack(values)

        return cls.from_arrays({name: column(name, first) for name, first in messages[0].items()})


class Marginal(NamedTuple):
    """m and v of each row, where an E-step ended."""

    m: Tensor
    v: Tensor


class ClientColumns(TypedState):
    """What of clients' states has the same shape for all, so that it can be stacked."""

    personal: State = under("personal/")
    optimiser: Moments = nested("adam/", Moments)
    anchors: State = under("anchor/")  # to which personal values are drawn
    evidence: Evidence | None = record("own/", Evidence)  # of its own in the server's sums

    @classmethod
    def unsaid(cls, received: Broadcast, own_noise: Sequence[str]) -> ClientColumns:
        """Those of clients that have said nothing yet: the common noise, and no evidence."""
        sums = received.sums
        nothing = (
            None if sums is None else Evidence(*(each.new_zeros(()).expand_as(each) for each in sums.arrays.values()))
        )
        return cls(personal={name: received.theta[name] for name in own_noise}, evidence=nothing)


class ClientRows(TypedState):
    """And what is as long as a client's rows."""

    warm: Marginal | None = record("warm/", Marginal)
    taught: Marginal | None = record("taught/", Marginal)  # of the labels that features are learned from
    held_out: Tensor | None = key("held_out")  # which inputs are


class Sent(TypedState):
    """The arrays of an update."""

    gradient: State = under("")  # of the bound by what the server steps, or in mode `average` the change of it
    held_out: State = under("held_out/")  # the features' gradient by the labels that they never see
    direction: Tensor | None = key("direction/features.projection")  # in place of the projection's gradient
    curvature: Tensor | None = key("curvature")  # second derivatives as one triangle


class SentEvidence(TypedState):
    """And of one of pfed-hier: the change of a client's evidence, in the parts of `Evidence`."""

    evidence: Mapping[str, Tensor | Change] = under("evidence/")


@dataclass(frozen=True, eq=False)
class StateBatch:
    """Several states, with the clients in the first dimension of `columns`; and the E-steps from which to go on."""

    columns: ClientColumns
    warm: BatchStep | None = None
    taught: BatchStep | None = None

    @cached_property
    def arrays(self) -> State:
        return self.columns.to_arrays()

    def has(self, n_clients: int) -> bool:
        """Whether it has the states of `n_clients` clients."""
        steps = [len(step.where) for step in (self.warm, self.taught) if step is not None]
        return all(n == n_clients for n in steps or [len(column) for column in self.arrays.values()])

    def states(self, n: int, held_out: Sequence[Tensor], apart: Evidence | None) -> list[BatchedState]:
        """The states of n clients; masks and evidence that is not to stay stacked go to each by itself."""
        if not held_out and apart is None:
            return [BatchedState(self, i) for i in range(n)]
        masks = [ClientRows(held_out=mask).to_arrays() for mask in held_out] or [{}] * n
        stacks = ClientColumns(evidence=apart).to_arrays().items()
        return [BatchedState(self, i, mask | {k: v[i].clone() for k, v in stacks}) for i, mask in enumerate(masks)]


class BatchedState(Mapping[str, Tensor]):
    """The state of a batch at one place, with what is its client's `own` beside; its arrays are made when someone looks."""

    __slots__ = ("_whole", "batch", "own", "place")

    def __init__(self, batch: StateBatch, place: int, own: Mapping[str, Tensor] | None = None) -> None:
        self.batch, self.place, self.own = batch, place, own or {}
        self._whole: State | None = None

    @property
    def whole(self) -> State:
        if self._whole is None:
            columns = {name: value[self.place] for name, value in self.batch.arrays.items()}
            rows = ClientRows(self._end_of(self.batch.warm), self._end_of(self.batch.taught))
            self._whole = {**columns, **rows.to_arrays(), **self.own}
        return self._whole

    def _end_of(self, step: BatchStep | None) -> Marginal | None:
        return None if step is None else Marginal(*step.marginals_of(self.place))

    def __getitem__(self, name: str) -> Tensor:
        return self.whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    def __or__(self, other: Mapping[str, Tensor]) -> State:
        return {**self.whole, **other}

    def __ror__(self, other: Mapping[str, Tensor]) -> State:
        return {**other, **self.whole}

    def __repr__(self) -> str:
        return repr(self.whole)

    def __reduce__(self) -> tuple[object, ...]:  # another process gets this state, not those of the whole batch
        return dict, (self.whole,)


class States:
    """The states of many clients, with a leading dimension."""

    def __init__(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        self._states, self._batch = states, _common(states)

    @property
    def stay_together(self) -> bool:
        """Whether they come from one batch, or from none: then large arrays may stay stacked. Else some clients of a batch come
        again long before others, and a stack would stay as long as the last of them."""
        return self._batch is not None or not any(isinstance(state, BatchedState) for state in self._states)

    def stacked(self, otherwise: ClientColumns | None = None) -> ClientColumns:
        """The arrays that the first client has, and those of `otherwise`, which stand in where a client has none."""
        instead = {} if otherwise is None else otherwise.to_arrays()
        known = {} if self._batch is None else self._batch.arrays
        names = known or {name: None for name in self._states[0] if ClientColumns.field_of(name)}
        missing = [name for name in (names | instead) if name not in known]
        return ClientColumns.from_arrays(known | {name: self._gathered(name, instead.get(name)) for name in missing})

    def _gathered(self, name: str, otherwise: Tensor | None) -> Tensor:
        if otherwise is None:
            return torch.stack([state[name] for state in self._states])
        values = [state.get(name) for state in self._states]
        if all(value is None for value in values):
            return otherwise
        return torch.stack([otherwise[i] if value is None else value for i, value in enumerate(values)])

    @property
    def warm(self) -> Starts:
        """The marginals at which the last E-steps ended, to start from; None for clients that had none."""
        known = None if self._batch is None else self._batch.warm
        return [rows.warm for rows in self._rows] if known is None else known

    @property
    def taught(self) -> Starts:
        """The same of the labels that features are learned from."""
        known = None if self._batch is None else self._batch.taught
        return [rows.taught for rows in self._rows] if known is None else known

    @property
    def held_out(self) -> list[Tensor]:
        """The inputs that each holds out from the features."""
        return [rows.held_out for rows in self._rows if rows.held_out is not None]

    @cached_property
    def _rows(self) -> list[ClientRows]:
        return [ClientRows.from_arrays(state) for state in self._states]


def _common(states: Sequence[Mapping[str, Tensor]]) -> StateBatch | None:
    """The batch of which these are the first, the second and so on to the last."""
    batch = getattr(states[0], "batch", None)
    same = all(isinstance(s, BatchedState) and s.batch is batch and s.place == i for i, s in enumerate(states))
    return batch if isinstance(batch, StateBatch) and same and batch.has(len(states)) else None
