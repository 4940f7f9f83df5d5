"""Heads β of a network with q(β) = N(μ, diag σ²), σ = softplus(s): the terms of pFedVEM's bound, and epochs on the trunk below.

Every function takes one client, or many with a leading dimension: features (..., rows, features + 1), whose last column is one,
heads (..., outputs, features + 1), and the share of each row in its client's mean loss, zero for rows that fill up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyfed.kinds import LabelForm
from polyfed.methods.base import Job
from polyfed.methods.messages import State
from polyfed.methods.neural.cohorts import Cohort, Labels, Positions, Rows
from polyfed.methods.supervised import LEAST_NOISE, with_one
from polyfed.nets import Network

if TYPE_CHECKING:
    from polyfed.methods.bayesian_heads.pfedvem import PFedVEM

Posterior = tuple[Tensor, Tensor]  # μ and s of a head, (..., outputs, features + 1): the last column is the bias


def information(labels: Labels, noise: Tensor) -> Tensor:
    """How much all labels of a client say about f, in the unit of the mean loss."""
    form, scale = labels.codec.task.form, labels.codec.scale
    held = (labels.shares > 0).to(torch.float64)
    if form is LabelForm.NUMBER:
        return held.sum(-1) / noise.clamp_min(LEAST_NOISE)
    if form is LabelForm.COUNT:  # μ/(1 + μ/ρ) each, of a negative binomial with mean μ
        return held.sum(-1) * scale / (1 + scale * noise)
    return (held * labels.y[..., 1]).sum(-1) if form is LabelForm.PAIR else held.sum(-1)


def outputs(h: Tensor, heads: Tensor) -> Tensor:
    """Outputs (..., draws, rows, outputs) under each of the heads (..., draws, outputs, features + 1)."""
    return h.unsqueeze(-3) @ heads.mT


def prior_variance(mean: Tensor, raw: Tensor, w: Tensor) -> Tensor:
    """ρ², at which KL(q ‖ N(w, ρ² I)) is least."""
    return (softplus(raw).square() + (mean - w).square()).mean((-2, -1))


def divergence(mean: Tensor, raw: Tensor, w: Tensor, rho2: Tensor) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(w, ρ² I)).

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> divergence(one, torch.log(torch.expm1(one)), 0 * one, one[0, 0]).item()  # σ = ρ = 1, apart by 1: ½
    0.5
    """
    sigma2, rho2 = softplus(raw).square(), rho2[..., None, None]
    return 0.5 * ((sigma2 + (mean - w).square()) / rho2 - 1 - torch.log(sigma2 / rho2)).sum((-2, -1))


def expected_loss(q: Posterior, h: Tensor, labels: Labels, noise: Tensor, draws: Tensor) -> Tensor:
    """−log p(y | β, h), summed over the labels and averaged over draws of β; constants in β left out."""
    form = labels.codec.task.form
    f = outputs(h, q[0].unsqueeze(-3) + softplus(q[1]).unsqueeze(-3) * draws)
    n = (labels.shares > 0).sum(-1)
    if form is LabelForm.NUMBER:
        unit = noise.clamp_min(LEAST_NOISE).sqrt()
        return n * Labels(labels.y / unit[..., None], labels.shares, labels.codec).loss(f / unit[..., None, None, None])
    if form is LabelForm.PAIR:  # by trials: the mean loss counts rows
        y = labels.under(f)
        return n * labels.averaged(y[:, 1] * softplus(f.flatten(0, -2)[:, 0]) - y[:, 0] * f.flatten(0, -2)[:, 0], f)
    return information(labels, noise) * labels.loss(f)


def as_matrix(i: int, values: State) -> Tensor:
    return torch.cat([values[f"head.{i}.weight"], values[f"head.{i}.bias"][:, None]], 1)


def as_layer(i: int, head: Tensor) -> State:
    return {f"head.{i}.weight": head[:, :-1].clone(), f"head.{i}.bias": head[:, -1].clone()}


def head_state(i: int, q: Posterior, rho2: Tensor) -> State:
    """What a client remembers of the head of task i."""
    return {f"mean/{i}": q[0], f"raw/{i}": q[1], f"rho2/{i}": rho2}


def precision_of(i: int) -> str:
    """Under which name 1/ρ² of the head of task i is sent."""
    return f"precision/{i}"


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
