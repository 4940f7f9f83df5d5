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
from polyfed.methods.bayesian_heads.uncertain_heads import Posterior, outputs, with_one
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
        self.method, self.turns, self.rngs = method, turns, rngs
        self.heads: dict[str, Posterior] = {}  # zeros for a client that has none
        for task, like in {task: q for turn in turns for task, q in turn.heads.items()}.items():
            missing = (torch.zeros_like(like[0]), torch.zeros_like(like[1]))
            mean, raw = zip(*(turn.heads.get(task, missing) for turn in turns), strict=True)
            self.heads[task] = (torch.stack(mean), torch.stack(raw))

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
        return there.loss(outputs(h, heads))

    def run_epochs(self, names: Sequence[str], rates: Sequence[float]) -> list[tuple[State, float]]:
        """Epochs of SGD: parameters, and the mean loss of the last epoch. Clients that have no batch left stand still."""
        method, values = self.method, self.stack([turn.values for turn in self.turns])
        rate, velocity = torch.tensor(rates, dtype=torch.float64), {}
        losses: list[list[float]] = [[] for _ in self.turns]
        for epoch in range(method.local_epochs):
            plans = [method.batches(self.net, turn.job.data, turn.job.stream, epoch) for turn in self.turns]
            losses = [[] for _ in self.turns]
            for positions in zip_longest(*plans, fillvalue={}):
                loss, gradient = self.gradient(values, self.batch(positions), names)
                active = torch.tensor([bool(mine) for mine in positions])
                for j, mine in enumerate(losses):
                    mine += [float(loss[j])] if positions[j] else []
                method.descend(values, gradient, velocity, rate, dict.fromkeys(gradient, active))
        means = [float(np.mean(mine)) if mine else 0.0 for mine in losses]
        return list(zip(self.unstack(values), means, strict=True))
