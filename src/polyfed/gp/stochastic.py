"""The sparse posterior by minibatches: natural gradients, for a client with more data than one pass per step allows.

q(w) is held by its natural parameters Λ and η = Φᵀr, of which the data give sums. A minibatch estimates the sums, and a step
goes a share ρ of the way from the present values to the estimate:

    Λ ← (1 − ρ) Λ + ρ (I + Σ s Φᵀ H Φ),      η ← (1 − ρ) η + ρ Σ s Φᵀ r,      ρ_t = (t + delay)^(−decay)

with the sites h, r at the marginals that q(w) gives now, and s = n / (data in the minibatch), task by task, so that the
estimate is unbiased. With all data in one batch and ρ = 1 this is a step of `infer`.

The state is explicit, and the order of the data depends on (seed, epoch) alone: a run that was interrupted goes on to the
same bits as one that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil

import torch
from torch import Tensor

from polyfed.errors import ConfigError
from polyfed.gp.linalg import cholesky
from polyfed.gp.rows import Block, Rows
from polyfed.gp.sparse import InducingModel, SparseGaussian, marginals


@dataclass(frozen=True)
class StochasticOptions:
    """How steps are made.

    Attributes:
        batch_size: data in a minibatch, all tasks together; each minibatch holds at least one of every task.
        decay: how fast steps get smaller. Above ½ they settle; at 0 every step is a full one.
        delay: how many steps are taken as made already; at least one.
        seed: of the order of the data.
    """

    batch_size: int = 256
    decay: float = 0.9
    delay: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size {self.batch_size} is too small", remedy="use at least one datum")
        if not 0.0 <= self.decay <= 1.0:
            raise ConfigError(f"decay {self.decay} is not between 0 and 1", remedy="use 0.9, or 0 for full steps")
        if not 1.0 <= self.delay < float("inf"):
            raise ConfigError(
                f"delay {self.delay} is not a number from one on", remedy="use 1, or more for shorter steps"
            )

    def rho(self, step: int) -> float:
        """The share of the way that a step goes, by Robbins and Monro."""
        return (step + self.delay) ** -self.decay


@dataclass(frozen=True)
class StochasticState:
    """q(w) after `step` minibatches: all that is needed to go on."""

    Lambda: Tensor
    eta: Tensor
    step: int = 0


def start(model: InducingModel) -> StochasticState:
    """The prior of w, before any data."""
    P = model.precision()
    return StochasticState(P, torch.zeros_like(P[0]))


def train(model: InducingModel, state: StochasticState, options: StochasticOptions, *, steps: int) -> StochasticState:
    """Further minibatches.

    >>> from polyfed.gp import Prior, SparseModel
    >>> from polyfed.gp.likelihoods import Bernoulli
    >>> x = torch.linspace(-1.0, 1.0, 100, dtype=torch.float64)[:, None]
    >>> rows = Rows.of(x, {"sick": (torch.arange(100), x[:, 0].sign())}, {"sick": Bernoulli()})
    >>> model = SparseModel(Prior(kernels=["rbf"], dims=1, outputs={"sick": 1}), rows, x[::20])
    >>> options = StochasticOptions(batch_size=10)
    >>> once = train(model, start(model), options, steps=30)
    >>> twice = train(model, train(model, start(model), options, steps=13), options, steps=17)
    >>> bool((once.Lambda == twice.Lambda).all()), as_gaussian(model, once).m[-1].item() > 0.0
    (True, True)
    """
    if steps < 0:
        raise ConfigError(f"{steps} steps", remedy="use zero or more")
    n_batches = batches_of(model.rows, options.batch_size)
    epoch, shuffled = -1, []
    for step in range(state.step, state.step + steps):
        if step // n_batches != epoch:
            epoch = step // n_batches
            shuffled = _shuffled(model.rows, options.seed, epoch)
        batch = [_share(order, step % n_batches, n_batches) for order in shuffled]
        state = natural_step(model, state, batch, options.rho(step))
    return state


def natural_step(model: InducingModel, state: StochasticState, batch: Sequence[Tensor], rho: float) -> StochasticState:
    """One step on some data of each block."""
    with torch.no_grad():
        positions, rows = take(model.rows, batch)
        Phi, d = model.design_matrix(positions)
        L, beta = _moments(state)
        h, r = rows.sites(model.prior, *marginals(Phi, d, L, beta))
        scale = torch.ones_like(h)
        whole = {block.task: len(block.y) for block in model.rows.blocks}
        for block in rows.blocks:
            scale[block.rows] = whole[block.task] / len(block.y)
        Lambda = torch.lerp(state.Lambda, model.precision() + Phi.mT @ ((scale * h)[:, None] * Phi), rho)
        return StochasticState(Lambda, torch.lerp(state.eta, (scale * r) @ Phi, rho), state.step + 1)


def as_gaussian(model: InducingModel, state: StochasticState) -> SparseGaussian:
    """The posterior that a state has come to, by one full pass: the sites of all data at its marginals, and q from them."""
    with torch.no_grad():
        return model.solve(*model.rows.sites(model.prior, *model.marginals(*_moments(state))))


def take(rows: Rows, data: Sequence[Tensor]) -> tuple[Tensor, Rows]:
    """Some data of each block: the positions of their rows among all, and these rows by themselves."""
    positions, blocks, n_rows = [torch.zeros(0, dtype=torch.int64)], [], 0
    for block, some in zip(rows.blocks, data, strict=True):
        old = block.rows[some]
        if len(some):
            new = torch.arange(n_rows, n_rows + old.numel()).reshape(old.shape)
            weight = None if block.weight is None else block.weight[some]
            blocks.append(Block(block.task, block.likelihood, block.y[some], new, weight=weight))
            positions.append(old.reshape(-1))
            n_rows += old.numel()
    at = torch.cat(positions)
    mu = None if rows.mu is None else rows.mu[at]
    return at, Rows(rows.x, rows.at[at], rows.A[at], tuple(blocks), mu=mu)


def batches_of(rows: Rows, batch_size: int) -> int:
    """The number of minibatches in an epoch, at least one."""
    return max(1, ceil(sum(len(block.y) for block in rows.blocks) / batch_size))


def _shuffled(rows: Rows, seed: int, epoch: int) -> list[Tensor]:
    """The data of each block in the order of one epoch."""
    # torch's generator takes 32 bits of a seed: a digest keeps (0, 1) and (1, 0) apart.
    digest = blake2b(f"{seed}, {epoch}".encode(), digest_size=4).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return [torch.randperm(len(block.y), generator=generator) for block in rows.blocks]


def _share(order: Tensor, number: int, n_batches: int) -> Tensor:
    """A minibatch's part of one task; a task with fewer data than there are minibatches lends each of them several times."""
    n = len(order)
    if n < n_batches:
        return order[number % n][None]
    return order[number * n // n_batches : (number + 1) * n // n_batches]


def _moments(state: StochasticState) -> tuple[Tensor, Tensor]:
    L = cholesky(state.Lambda)
    return L, torch.cholesky_solve(state.eta[:, None], L)[:, 0]
