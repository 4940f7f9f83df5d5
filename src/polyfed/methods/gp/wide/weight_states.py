"""What servers and clients of pfed-hier for wide inputs remember and send, and under which keys: no other file spells one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from polyfed.gp import Evidence
from polyfed.gp.components import Components, Products
from polyfed.methods.gp.states import Marginal, Moments
from polyfed.methods.messages import State
from polyfed.methods.typed_state import TypedState, key, nested, record, under


class Curve(NamedTuple):
    """What curved features are made of: V when the function was bent, and how its outputs are scaled."""

    weights: Tensor
    mean: Tensor
    spread: Tensor


class Served(TypedState):
    """What of the server's state clients learn and predict with."""

    shared: Tensor = key("coregionalisation/shared")  # B of V
    personal: Tensor = key("coregionalisation/personal")  # B of each V_c
    noise: State = under("noise/")  # its logarithm, by task
    sums: Evidence | None = record("evidence/", Evidence)  # of all clients, of V; None before the components are found
    components: Components | None = record("components/", Components)  # None too for clients that have received them
    curve: Curve | None = record("curve/", Curve)  # None before the function is bent


class Broadcast(Served):
    """What the server sends: a basis as long as components are sought, and then the rest."""

    basis: Tensor | None = key("basis")


class Server(Broadcast):
    """And what the server keeps to itself."""

    wanted: Tensor = key("wanted")  # components
    passes: Tensor = key("passes")  # that are over
    rounds: Tensor = key("rounds")  # after these
    received: Tensor = key("received")  # clients that have the components
    positions: State = under("position/")  # of the tasks: storage does not keep the order of names
    optimiser: Moments = nested("adam/", Moments)  # of noises without a closed form
    limits: State = under("limit/")  # of evidence (evidence_limits.py)


class Client(TypedState):
    evidence: Evidence | None = record("own/", Evidence)  # of its own in the server's sums
    warm: Marginal | None = record("warm/", Marginal)
    outputs: Tensor | None = key("outputs")  # what the others make of its inputs
    scores: Tensor | None = key("scores")


class Sent(TypedState):
    """The arrays of an update."""

    products: Products | None = record("pass/", Products)  # as long as components are sought, and nothing else
    change: Evidence = record("evidence/", Evidence)
    moments: Tensor = key("moments")  # of V_c
    outputs: Tensor | None = key("outputs")  # sums of them, of their squares and of ones, until the function is bent
    noise: State = under("noise.")  # the gradient by each that has no closed form


def is_wide(server: Mapping[str, Tensor]) -> bool:
    return any(Served.field_of(name) == "shared" for name in server)
