"""The local work of many Gaussian-process clients at once: E-steps, gradients, local steps on what they may change.

Clients that fit into memory as exact models go through the batched solver, so thousands take one call; large ones with
inducing inputs go one by one. Who shares a batch changes nothing in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from polyfed.gp import BatchStep, ClientBatch, Prior, Rows, infer
from polyfed.gp.meanfield import Marginals
from polyfed.methods.gp_model import GPModel, clamped
from polyfed.methods.messages import State
from polyfed.methods.optimiser import Adam

KEPT_NUMBERS = 2**25  # of the inputs and matrices of batches that are kept for the next round: a quarter of a gigabyte
_kept: dict[tuple[int, ...], tuple[Sequence[Rows], ClientBatch]] = {}
_lock = Lock()


def batch_of(rows: Sequence[Rows]) -> ClientBatch:
    """A batch of these clients; the latest ones are kept, since with full participation every round has the same."""
    key = tuple(id(client) for client in rows)
    with _lock:
        found = _kept.pop(key, None)
        if found is None:
            found = (list(rows), ClientBatch(rows))  # the rows too, so that their identities stay taken
        _kept[key] = found
        while len(_kept) > 1 and sum(_size(kept) for kept, _ in _kept.values()) > KEPT_NUMBERS:
            _kept.pop(next(iter(_kept)))
        return found[1]


def _size(rows: Sequence[Rows]) -> int:
    return sum(len(client) ** 2 + client.x.numel() for client in rows)


def solver_of(model: GPModel, rows: Sequence[Rows]) -> ClientBatch | OneByOne:
    """What solves these clients: all at once, where that is possible."""
    alone = model.structure.sparsity.points is not None or model.prior.features is not None
    return OneByOne(model, rows) if alone else batch_of(rows)


class OneByOne:
    """Clients with inducing inputs or a network under their kernels, solved in a loop; answers as a `ClientBatch` does."""

    def __init__(self, model: GPModel, rows: Sequence[Rows]) -> None:
        self.sparsity, self.rows = model.structure.sparsity, rows

    def step(
        self,
        prior: Prior,
        *,
        start: BatchStep | Sequence[Marginals | None],
        tolerance: float,
        max_steps: int,
        groups: Sequence[str],
    ) -> BatchStep:
        bounds, marginals, where = [], [], []
        wanted = list(prior.group(*groups))
        gradients: dict[str, list[Tensor]] = {name: [] for name in wanted}
        noise: list[dict[str, tuple[Tensor, Tensor]]] = []
        for i, rows in enumerate(self.rows):
            mine = prior.with_values({name: value[i] for name, value in prior.parameters.items()})
            begin = start.marginals_of(i) if isinstance(start, BatchStep) else start[i]
            gp = self.sparsity.build(mine, rows, self.sparsity.choose(mine, rows))
            q = infer(gp, start=begin, tolerance=tolerance, max_steps=max_steps).q
            value = gp.bound(q)
            leaves = [mine.parameters[name] for name in wanted]
            grads = torch.autograd.grad(value, leaves, allow_unused=True) if leaves else ()
            for name, leaf, grad in zip(wanted, leaves, grads, strict=True):
                gradients[name].append(torch.zeros_like(leaf) if grad is None else grad)
            bounds.append(value.detach())
            noise.append(gp.rows.noise_statistics(mine, q.m, q.v))
            marginals.append((q.m[None], q.v[None]))
            where.append((i, 0, torch.arange(len(rows))))
        zero = torch.zeros((), dtype=torch.float64)
        tasks = dict.fromkeys(task for statistics in noise for task in statistics)
        pairs = {task: [statistics.get(task, (zero, zero)) for statistics in noise] for task in tasks}
        return BatchStep(
            torch.stack(bounds),
            {name: torch.stack(parts) for name, parts in gradients.items()},
            {t: (torch.stack([p[0] for p in pair]), torch.stack([p[1] for p in pair])) for t, pair in pairs.items()},
            marginals,
            where,
        )


@dataclass(frozen=True)
class LocalWork:
    """What clients do in a round.

    Attributes:
        moving: the parameters that clients change themselves, by name (closed-form noise among them).
        groups: the groups whose gradient is wanted.
        optimiser: of the parameters that move and have no closed form.
        steps: M-steps, each after an E-step of `mf_steps` mean-field steps.
        proximal: pull of moving parameters to their `anchors`, in nats for a squared distance of two.
    """

    moving: tuple[str, ...]
    groups: tuple[str, ...]
    optimiser: Adam
    steps: int
    mf_steps: int
    tolerance: float
    proximal: float = 0.0

    def run(
        self,
        model: GPModel,
        rows: Sequence[Rows],
        values: State,
        memory: State,
        anchors: State,
        start: Sequence[Marginals | None],
    ) -> tuple[State, State, BatchStep]:
        """Θ of each client after its steps, the state of its optimiser, and the last E-step with its gradient.

        `values`, `memory` and `anchors` hold all clients in a leading dimension.
        """
        solver = solver_of(model, rows)
        step: BatchStep | None = None
        for _ in range(self.steps):
            step = solver.step(
                model.prior.with_values(values),
                start=start if step is None else step,
                tolerance=self.tolerance,
                max_steps=self.mf_steps,
                groups=self.groups,
            )
            values, memory = self._move(model, values, memory, anchors, step)
        assert step is not None
        return values, memory, step

    def _move(
        self, model: GPModel, values: State, memory: State, anchors: State, step: BatchStep
    ) -> tuple[State, State]:
        closed = model.closed_form_noise
        mine = {name: values[name] for name in self.moving if name not in closed}
        gradient = {name: step.gradient[name] for name in mine}
        for name, anchor in anchors.items():
            if name in gradient:
                gradient[name] = gradient[name] - self.proximal * (values[name] - anchor)
        moved, memory = self.optimiser.step(mine, gradient, memory) if mine else ({}, memory)
        for name in set(closed) & set(self.moving):
            task = name.removeprefix("noise.")
            if task in step.noise:  # optimial sigma; who has no label of the task keeps what it has
                total, count = step.noise[task]
                moved[name] = torch.where(count > 0, (total / count.clamp_min(1.0)).log(), values[name])
        return {**values, **clamped(moved)}, memory
