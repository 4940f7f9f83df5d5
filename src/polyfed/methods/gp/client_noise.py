"""A noise level of each client's own (`client_noise`), and what the federation makes of them.

Levels are pooled by gp/noise_pool.py. No number leaves a client that did not leave it
before: its sum of squared residuals and its count. The server needs them client by client for this, so that it does not go with
secure aggregation. It learns from them how different the clients are, and sends everybody the common level and its strength; a
client's own level stays in its state, where predictions find it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyfed.gp import noise_pool
from polyfed.methods.gp.model import clamped
from polyfed.methods.gp.states import Broadcast, Server
from polyfed.methods.messages import State

Sums = Mapping[str, tuple[Tensor, Tensor]]


def strengths_started(names: Sequence[str]) -> State:
    """log ν of these noises, before the first round."""
    return {name: torch.tensor(noise_pool.STRENGTH[0], dtype=torch.float64) for name in names}


def own_noise(noise: Sums, received: Broadcast, names: Sequence[str]) -> State:
    """The noise of each client by its own labels and what the federation says."""
    after = {}
    for name in names:
        common, strength = received.theta[name], received.strengths[name]
        nothing = torch.zeros_like(common)
        total, count = noise.get(name.removeprefix("noise."), (nothing, nothing))
        after[name] = noise_pool.own_log_noise(total, count, common, strength)
    return clamped(after)


def pooled_levels(server: Server, counted: Sums, share: float) -> tuple[State, State]:
    """log s² and log ν of each noise, from the sums and counts of the clients asked, who are this share of all."""
    levels, strengths = {}, {}
    for name, pair in counted.items():
        total, count = (value.to(torch.float64) for value in pair)
        before = server.pooled[name], server.strengths[name]
        after = noise_pool.pooled(total, count, *before, server.densities.get(name), share)
        # A few clients say little of all: with a part of them the server goes a part of the way.
        levels[name], strengths[name] = (old + share * (new - old) for old, new in zip(before, after, strict=True))
    return levels, strengths
