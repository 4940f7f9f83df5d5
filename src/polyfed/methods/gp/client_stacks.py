"""Parameters, states and updates of many clients with a leading dimension, and what a server makes of them.

>>> mean_over(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0], dtype=torch.float64))
tensor([2.])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyfed.gp import group_of
from polyfed.methods.messages import ClientUpdate, State


def stacked(states: Sequence[Mapping[str, Tensor]]) -> State:
    """The values of many clients, with a leading dimension; what is one tensor for all of them is not copied."""
    if all(state is states[0] for state in states):
        return {name: value.expand(len(states), *value.shape) for name, value in states[0].items()}
    return {name: _stack([state[name] for state in states]) for name in states[0]}


def _stack(values: Sequence[Tensor]) -> Tensor:
    first = values[0]
    same = all(value is first for value in values)
    return first.expand(len(values), *first.shape) if same else torch.stack(list(values))


def mean_over(values: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean over the first dimension; zero if nobody has a weight."""
    shaped = weights.reshape(-1, *(1,) * (values.dim() - 1))
    mean = (shaped * values).sum(0) / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
    return mean.to(values.dtype)  # a network's are of float32


def owners(name: str, sent: Sequence[ClientUpdate]) -> Tensor:
    """One for the clients that have the task of this parameter, zero for the others."""
    if group_of(name) not in ("mixing", "noise"):
        return torch.ones(len(sent), dtype=torch.float64)
    task = name.partition(".")[2]
    return torch.tensor([float(update.counts[task] > 0) for update in sent], dtype=torch.float64)
