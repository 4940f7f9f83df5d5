"""pFedVEM's epochs on the trunk, of several clients side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyfed.methods.base import Job
from polyfed.methods.bayesian_heads.uncertain_heads import Labels, Posterior, outputs, with_one
from polyfed.methods.messages import State
from polyfed.methods.neural.cohorts import Cohort, Positions, Rows
from polyfed.nets import Network

if TYPE_CHECKING:
    from polyfed.methods.bayesian_heads.pfedvem import PFedVEM


@dataclass(frozen=True, eq=False)
class Turn:
    """Where a client is in its round: all its parameters, and q of the heads that it has labels for."""

    job: Job
    values: State
    heads: dict[str, Posterior]

    def of(self, owner: str | None) -> Turn:
        """With the labels of one task alone, whose trunk it has to itself."""
        data = self.job.data
        seen = {task: rows for task, rows in data.labels.items() if owner in (None, task)}
        return replace(self, job=replace(self.job, data=replace(data, labels=seen)))


def drawn(rngs: Sequence[np.random.Generator], shape: Sequence[int]) -> Tensor:
    """Standard normal numbers, of each client by its own generator: (clients, *shape)."""
    return torch.from_numpy(np.stack([rng.standard_normal(shape) for rng in rngs]))


class Trunks(Cohort):
    """Clients whose heads are drawn anew in every step."""

    def __init__(
        self, method: PFedVEM, net: Network, turns: Sequence[Turn], rngs: Sequence[np.random.Generator]
    ) -> None:
        super().__init__(net, [turn.job.data for turn in turns], train=method.bn_buffers != "frozen")
        self.method, self.rngs, self.heads = method, rngs, _stacked(turns)

    def batch(self, positions: Sequence[Positions]) -> dict[str, tuple[Rows, Tensor]]:
        """Rows and heads of each task. Clients draw in the order of their own tasks, and only for those of this step."""
        drawn_by = [
            {task: rng.standard_normal((self.method.n_draws, *self.heads[task][0].shape[1:])) for task in mine}
            for rng, mine in zip(self.rngs, positions, strict=True)
        ]
        found = {}
        for task, rows in super().batch(positions).items():
            mean, raw = self.heads[task]
            nothing = np.zeros((self.method.n_draws, *mean.shape[1:]))
            noise = torch.from_numpy(np.stack([mine.get(task, nothing) for mine in drawn_by]))
            found[task] = (rows, mean[:, None] + softplus(raw)[:, None] * noise)
        return found

    def loss_of(self, live: State, task: str, rows: tuple[Rows, Tensor]) -> Tensor:
        there, heads = rows
        h = with_one(self.each(self.net.features, live, there.x, task))
        return Labels(there.y, there.shares, there.codec).loss(outputs(h, heads))


def train_side_by_side(
    method: PFedVEM,
    net: Network,
    turns: Sequence[Turn],
    names: Sequence[str],
    rates: Sequence[float],
    rngs: Sequence[np.random.Generator],
) -> list[tuple[State, float]]:
    """What `train` makes of each: parameters, and the mean loss of the last epoch. Who has no batch left stands still."""
    cohort = Trunks(method, net, turns, rngs)
    values = cohort.stack([turn.values for turn in turns])
    rate, velocity = torch.tensor(rates, dtype=torch.float64), {}
    losses: list[list[float]] = [[] for _ in turns]
    for epoch in range(method.local_epochs):
        plans = [method.batches(net, turn.job.data, turn.job.stream, epoch) for turn in turns]
        losses = [[] for _ in turns]
        for positions in zip_longest(*plans, fillvalue={}):
            loss, gradient = cohort.gradient(values, cohort.batch(positions), names)
            active = torch.tensor([bool(mine) for mine in positions])
            for j, mine in enumerate(losses):
                mine += [float(loss[j])] if positions[j] else []
            method.descend(values, gradient, velocity, rate, dict.fromkeys(gradient, active))
    means = [float(np.mean(mine)) if mine else 0.0 for mine in losses]
    return list(zip(cohort.unstack(values), means, strict=True))


def _stacked(turns: Sequence[Turn]) -> dict[str, Posterior]:
    """q of each task's head; zeros for a client that has none."""
    tasks = dict.fromkeys(task for turn in turns for task in turn.heads)
    found = {}
    for task in tasks:
        like = next(turn.heads[task] for turn in turns if task in turn.heads)
        missing = (torch.zeros_like(like[0]), torch.zeros_like(like[1]))
        heads = [turn.heads.get(task, missing) for turn in turns]
        found[task] = (torch.stack([q[0] for q in heads]), torch.stack([q[1] for q in heads]))
    return found
