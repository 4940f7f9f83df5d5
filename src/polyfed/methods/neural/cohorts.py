"""Clients that train side by side: at small sizes a step costs what its calls cost, so one call is made for all of them.

Parameters of several clients are stacked along a first dimension; so are their batches, the shorter ones filled up with rows
that weigh nothing. No client's numbers enter another's: the sum of all losses has, in the parameters of each, the gradient
of its own. What a method computes with the parameters is the same code for one client and for many, as long as it goes
elementwise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, LabelCodec
from polyfed.methods.base import ClientResult, Job
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.neural.shared_network import SharedNetwork
from polyfed.methods.supervised import supervision_of
from polyfed.nets import Network
from polyfed.seeds import Stream

NUMBERS = 2**26  # in as many matrices of rows by rows as there are clients in a cohort
Positions = Mapping[str, np.ndarray]  # task → positions among a client's labels
Batch = dict[str, Any]  # task → what clients look at in a step


@dataclass(frozen=True, eq=False)
class Labels:
    """Coded labels (..., rows) of a task, and the share of each in the mean loss of its client."""

    y: Tensor
    shares: Tensor
    codec: LabelCodec

    @classmethod
    def of(cls, y: Tensor, codec: LabelCodec, weights: Tensor | None = None) -> Labels:
        """Those of one client, which may count more or less."""
        once = torch.ones(len(y), dtype=torch.float64)
        return Labels(y, (once if weights is None else weights) / len(y), codec)

    def loss(self, f: Tensor) -> Tensor:
        """The mean loss over rows and draws, (...), at outputs (..., draws, rows, outputs)."""
        return self.averaged(supervision_of(self.codec).losses(f.flatten(0, -2), self.under(f), self.codec), f)

    def under(self, f: Tensor) -> Tensor:
        """The labels of all rows under each draw, one after the other."""
        rows = self.shares.dim()
        return self.y.unsqueeze(rows - 1).expand(*f.shape[:-1], *self.y.shape[rows:]).flatten(0, rows)

    def averaged(self, losses: Tensor, f: Tensor) -> Tensor:
        return (self.shares.unsqueeze(-2) * losses.reshape(f.shape[:-1])).sum(-1).mean(-1)


@dataclass(frozen=True, eq=False)
class Rows(Labels):
    """Labels (clients, rows) and their inputs (clients, rows, features)."""

    x: Tensor

    @classmethod
    def stack(cls, members: Sequence[ClientData], task: str, positions: Sequence[np.ndarray]) -> Rows:
        """Rows of weight zero are copies of some label of this task, so that their loss is a number."""
        somewhere = next(data for data, at in zip(members, positions, strict=True) if len(at))
        x0, y0 = (torch.from_numpy(a[:1]) for a in (somewhere.x, somewhere.labels[task][1]))
        shape = (len(members), max(map(len, positions)))
        x, y = x0.expand(*shape, -1).clone(), y0.expand(*shape, *y0.shape[1:]).clone()
        shares = torch.zeros(shape, dtype=torch.float64)
        for i, (data, at) in enumerate(zip(members, positions, strict=True)):
            if n := len(at):
                places, labels = data.labels[task]
                x[i, :n], y[i, :n] = torch.from_numpy(data.x[places[at]]), torch.from_numpy(labels[at])
                shares[i, :n] = torch.from_numpy(data.weights_of(task)[at]) / n
        return cls(y, shares, somewhere.codecs[task], x)


class Cohort:
    """Several clients with the same tasks and an MLP each, or one client with any network (`train`: batch norm learns)."""

    def __init__(self, net: Network, members: Sequence[ClientData], *, train: bool = True) -> None:
        self.net, self.members, self.train = net, members, train

    def stack(self, states: Sequence[State]) -> State:
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def unstack(self, values: State) -> list[State]:
        parts = {name: value.unbind() for name, value in values.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(self.members))]

    def batch(self, positions: Sequence[Positions]) -> Batch:
        """What each client looks at in a step."""
        nothing = np.zeros(0, dtype=np.int64)
        tasks = [task for task in self.net.tasks if any(len(mine.get(task, nothing)) for mine in positions)]
        return {task: Rows.stack(self.members, task, [mine.get(task, nothing) for mine in positions]) for task in tasks}

    def gradient(self, values: State, batch: Batch, names: Sequence[str]) -> tuple[Tensor, State]:
        """The sum of the tasks' mean losses of each client, and its gradient in those parameters that it touches."""
        leaves = {name: values[name].detach().requires_grad_() for name in names}
        loss = self.loss(values, {**values, **leaves}, batch)
        grads = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        return loss.detach(), {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}

    def loss(self, values: State, live: State, batch: Batch) -> Tensor:
        """The sum of the tasks' mean losses of each client; running statistics in `values` move on."""
        live |= {name: values[name].clone() for name in self.net.buffers}  # a forward pass moves them in place
        loss = torch.stack([self.loss_of(live, task, rows) for task, rows in batch.items()]).sum(0)
        values.update({name: live[name] for name in self.net.buffers})
        return loss

    def loss_of(self, live: State, task: str, rows: Any) -> Tensor:
        """The mean loss of each client on its rows of a task."""
        return rows.loss(self.each(self.net, live, rows.x, task)[:, None])

    def each(self, part: Callable[..., Tensor], live: State, x: Tensor, task: str) -> Tensor:
        """What a network, or its `features`, makes of the rows (clients, rows, inputs) of each client."""
        if self.net.is_mlp:
            return part(live, x, task)
        return part({name: value[0] for name, value in live.items()}, x[0], task, train=self.train)[None]


def cohorts(jobs: Sequence[Job], net: Network, batch_size: int) -> list[list[int]]:
    """Positions of the jobs whose clients train side by side: an MLP each, labels coded alike, batches of like sizes.

    What is filled up is computed in vain, so sizes differ by less than a factor of four; and memory holds a covariance of each.
    """
    if not net.is_mlp:
        return [[i] for i in range(len(jobs))]

    def alike(i: int) -> tuple[int, str]:
        most = max((len(at) for at, _ in jobs[i].data.labels.values()), default=0)
        return min(most, batch_size).bit_length() // 2, repr(jobs[i].data.codecs)

    found = []
    for (size, _), group in groupby(sorted(range(len(jobs)), key=lambda i: (alike(i), i)), key=alike):
        members, most = list(group), max(1, NUMBERS >> (4 * size + 2))  # batches have less than 2^(2 size + 1) rows
        found += [members[i : i + most] for i in range(0, len(members), most)]
    return found


@dataclass(frozen=True)
class TrainedSideBySide(SharedNetwork):
    """Methods whose clients train in cohorts."""

    @abstractmethod
    def train_cohort(self, jobs: Sequence[Job]) -> list[tuple[State, ClientUpdate]]:
        """A round of clients that train side by side; one alone may have any network."""

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        return self.train_cohort([Job("", state, message, data, stream)])[0]

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        """If one of a cohort breaks it, each tries alone, and the error is that client's."""
        outcomes: dict[int, ClientResult] = {}
        for group in cohorts(jobs, self.net_of(jobs[0].data), self.batch_size) if jobs else ():
            members = [jobs[i] for i in group]
            try:
                found = self.train_cohort(members) if len(members) > 1 else [self._attempt(members[0])]
            except Exception:
                found = [self._attempt(job) for job in members]
            outcomes |= dict(zip(group, found, strict=True))
        return [outcomes[i] for i in range(len(jobs))]
