"""What servers and clients of pFed-Mul and pfed-hier remember and send, and under which keys: no other file spells one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polyfed.gp import Evidence
from polyfed.methods.messages import State
from polyfed.methods.typed_state import TypedState, key, nested, record, under
from polyfed.methods.update_batch import Change

# ---- optimisers ----------------------------------------------------------------------------------------------


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


# ---- the server ------------------------------------------------------------------------------------------------


class Served(TypedState):
    """What of the server's state clients predict with."""

    theta: State = under("theta/")  # shared, and learned by steps
    pooled: State = under("pooled/")  # shared noise with a closed form
    initial: State = under("initial/")  # what everyone starts from, of personal groups
    strengths: State = under("strength/")  # log ν of noise levels that clients have for themselves (client_noise.py)
    draws: State = under("draw/")  # of Θ (theta_draws.py), with a leading dimension
    sums: Evidence | None = record("evidence/", Evidence)  # of all clients, of the shared functions (pfed_hier.py)
    points: Tensor | None = key("shared/Z")  # that these go through

    @property
    def values(self) -> State:
        """All of Θ."""
        return {**self.initial, **self.theta, **self.pooled}


class Server(Served):
    """And what is no client's business when it predicts."""

    optimiser: Moments = nested("adam/", Moments)
    densities: State = under("density/")  # the prior of Θ (theta_prior.py)
    n_clients: Tensor | None = key("clients")
    agreements: State = under("agreement/")  # of held-out labels with the others (feature_learning.py)
    starting: Tensor | None = key("starting")  # while the round is for the start of projections
    curving: Tensor | None = key("curving")  # while second derivatives are asked for (theta_draws.py)
    widths: State = under("width/")  # of the prior of what is drawn
    normals: Tensor | None = key("normals")  # behind the draws
    limits: State = under("limit/")  # of evidence (evidence_limits.py)


class Broadcast(TypedState):
    """What the server sends."""

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


# ---- a client --------------------------------------------------------------------------------------------------


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
