"""A noise level of its own for each client (gp/noise_pool.py) in a federation: `client_noise = true`.

No number leaves a client that did not leave it before: its sum of squared residuals and its count. The server needs them client
by client for this, so that it does not go with secure aggregation. It learns from them how different the clients are, and tells
everybody the common level and its strength; a client's own level stays in its state, where predictions find it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyfed.gp import noise_pool
from polyfed.methods.gp.client_stacks import stacked
from polyfed.methods.gp.model import clamped
from polyfed.methods.messages import State

STRENGTH = "strength"  # label of log ν, by the names of the noises
Sums = Mapping[str, tuple[Tensor, Tensor]]


def started(names: Sequence[str]) -> State:
    """What the server begins with."""
    return {f"{STRENGTH}/{name}": torch.tensor(noise_pool.STRENGTH[0], dtype=torch.float64) for name in names}


def received(server: Mapping[str, Tensor]) -> State:
    """What of it clients are sent."""
    return {name: value for name, value in server.items() if name.startswith(f"{STRENGTH}/")}


def with_own(values: State, states: Sequence[State], names: Sequence[str]) -> State:
    """The values of all clients with the noise that each has found for itself; the common one where it has none yet."""
    own = {
        name: torch.stack([state.get(f"personal/{name}", values[name][i]) for i, state in enumerate(states)])
        for name in names
    }
    return values | own


def found(noise: Sums, messages: Sequence[Mapping[str, Tensor]], names: Sequence[str]) -> State:
    """The noise of each client by its own labels and what the federation says."""
    common = stacked(messages, names)
    strengths = stacked(messages, [f"{STRENGTH}/{name}" for name in names])
    nothing = torch.zeros(len(messages), dtype=torch.float64)
    after = {}
    for name in names:
        total, count = noise.get(name.removeprefix("noise."), (nothing, nothing))
        after[name] = noise_pool.own_log_noise(total, count, common[name], strengths[f"{STRENGTH}/{name}"])
    return clamped(after)


def pooled(name: str, counted: tuple[Tensor, Tensor], server: State, share: float) -> tuple[Tensor, Tensor]:
    """log s² and log ν of a noise, from the sums and counts of the clients asked, who are this share of all."""
    total, count = (value.to(torch.float64) for value in counted)
    before = server[f"pooled/{name}"], server[f"{STRENGTH}/{name}"]
    after = noise_pool.pooled(total, count, *before, server.get(f"density/{name}"), share)
    # A few clients say little of all: with a part of them the server goes a part of the way.
    moved = [old + share * (new - old) for old, new in zip(before, after, strict=True)]
    return moved[0], moved[1]
