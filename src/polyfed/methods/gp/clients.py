"""The local work of many Gaussian-process clients at once: E-steps, gradients, local steps on what they may change.

Clients that fit into memory as exact models go through the batched solver, so thousands take one call; those with
inducing inputs (by choice, or because memory does not hold the exact model) go one by one. Who shares a batch changes
nothing in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from polyfed.gp import BatchStep, ClientBatch, Prior, Rows, hyperprior, infer
from polyfed.gp.batch import Places
from polyfed.gp.hyperprior import HyperPrior
from polyfed.gp.knowledge import Evidence, KnowledgeOf
from polyfed.gp.meanfield import Marginals
from polyfed.methods.gp.model import GPModel, clamped
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.states import Moments
from polyfed.methods.messages import State
from polyfed.modelling.memory import holds, memory

# The marginals that E-steps begin at: of a last step, or of each client.
Starts = BatchStep | Sequence[Marginals | None]
KEPT = 0.125  # of the memory, for inputs and distances of batches that are kept for the next round
_kept: dict[tuple[int, ...], tuple[Sequence[Rows], int, ClientBatch]] = {}  # the rows too: their identities stay taken
_lock = Lock()


def batch_of(rows: Sequence[Rows]) -> ClientBatch:
    """A batch of these clients; the latest ones are kept, since with full participation every round has the same."""
    key = tuple(id(client) for client in rows)
    found = _kept.get(key)
    if found is None:
        found = list(rows), sum(len(client) ** 2 + client.x.numel() for client in rows), ClientBatch(rows)
    with _lock:
        _kept.pop(key, None)  # the latest comes last
        _kept[key] = found
        while len(_kept) > 1 and 8.0 * sum(size for _, size, _ in _kept.values()) > KEPT * memory():
            _kept.pop(next(iter(_kept)))
    return found[2]


def solver_of(model: GPModel, rows: Sequence[Rows]) -> Solver:
    """What solves these clients: all at once, but for those that go alone, and in turn where memory does not hold all."""
    sizes = [len(client) for client in rows]
    apart = {size for size in set(sizes) if model.goes_alone(size)}
    alone = [i for i, size in enumerate(sizes) if size in apart]
    together = _that_fit([i for i, size in enumerate(sizes) if size not in apart], rows)
    if not alone and len(together) == 1:
        return batch_of(rows)
    if not together:
        return OneByOne(model, rows)
    # What does not fit at once is made anew for every step: to keep all of it would be to hold it at once.
    make = batch_of if len(together) == 1 else ClientBatch
    parts: list[tuple[list[int], Callable[[], ClientBatch | OneByOne]]] = [
        (places, lambda places=places: make([rows[i] for i in places])) for places in together
    ]
    if alone:
        parts.append((alone, lambda: OneByOne(model, [rows[i] for i in alone])))
    return Parted(parts)


def _that_fit(places: Sequence[int], rows: Sequence[Rows]) -> list[list[int]]:
    """Groups of clients whose distances memory holds at once; one group, as a rule."""
    if not places or holds(8.0 * sum(len(rows[i]) ** 2 for i in places)):
        return [list(places)] if places else []
    groups: list[list[int]] = []
    numbers = 0
    for i in places:
        numbers += len(rows[i]) ** 2
        if not groups or not holds(8.0 * numbers):
            groups.append([])
            numbers = len(rows[i]) ** 2
        groups[-1].append(i)
    return groups


class Parted:
    """Clients of several solvers, one after the other; answers as one. A solver is made when its turn comes."""

    def __init__(self, parts: Sequence[tuple[list[int], Callable[[], ClientBatch | OneByOne]]]) -> None:
        self.parts = [(torch.tensor(places), make) for places, make in parts]

    def step(self, prior: Prior, *, start: Starts, knowledge: KnowledgeOf | None = None, **options: Any) -> BatchStep:
        done: list[BatchStep] = []
        for places, make in self.parts:
            own = [start.marginals_of(i) if isinstance(start, BatchStep) else start[i] for i in places.tolist()]
            received = None if knowledge is None else lambda group, places=places: knowledge(places[group])
            done.append(make().step(prior.take(places), start=own, knowledge=received, **options))
        return _joined(done, torch.cat([places for places, _ in self.parts]).argsort())


class OneByOne:
    """Clients with inducing inputs or a network under their kernels, solved in a loop; answers as a `ClientBatch` does."""

    def __init__(self, model: GPModel, rows: Sequence[Rows]) -> None:
        self.sparsity, self.rows = model.config.sparsity, rows

    def step(
        self,
        prior: Prior,
        *,
        start: Starts,
        tolerance: float,
        max_steps: int,
        groups: Sequence[str],
        knowledge: KnowledgeOf | None = None,
    ) -> BatchStep:
        done: list[BatchStep] = []
        for i, rows in enumerate(self.rows):
            mine = prior.with_values({name: value[i] for name, value in prior.parameters.items()})
            begin = start.marginals_of(i) if isinstance(start, BatchStep) else start[i]
            received = None if knowledge is None else knowledge(torch.tensor([i]))[0]
            gp = self.sparsity.build(mine, rows, self.sparsity.choose(mine, rows), knowledge=received)
            begin = None if begin is None else gp.rows.as_f(begin, back=True)
            q = infer(gp, start=begin, tolerance=tolerance, max_steps=max_steps).q
            value, leaves = gp.bound(q), mine.group(*groups)
            wanted = list(leaves.values())
            grads = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True) if wanted else ()
            noise = gp.rows.noise_statistics(mine, q.m, q.v)
            m, v = gp.rows.as_f((q.m, q.v))
            done.append(
                BatchStep(
                    value.detach()[None],
                    {name: grad[None] for name, grad in zip(leaves, grads, strict=True)},
                    {task: (total[None], count[None]) for task, (total, count) in noise.items()},
                    [(m[None], v[None])],
                    Places([(0, 0, torch.arange(len(rows)))], [len(rows)]),
                    None if received is None else Evidence.stack([gp.evidence(q)]),  # pyright: ignore[reportAttributeAccessIssue]
                )
            )
        return _joined(done, torch.arange(len(done)))


def _joined(steps: Sequence[BatchStep], order: Tensor) -> BatchStep:
    """Those of several solvers as one, with the clients in this order."""

    def of_all(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))[order]

    noise: dict[str, tuple[Tensor, Tensor]] = {}
    for task in dict.fromkeys(task for step in steps for task in step.noise):
        pairs = [step.noise.get(task, (torch.zeros_like(step.bound),) * 2) for step in steps]
        noise[task] = of_all([total for total, _ in pairs]), of_all([count for _, count in pairs])
    marginals: list[Marginals] = []
    where: list[tuple[int, int, Tensor]] = []
    for step in steps:
        where += [(bucket + len(marginals), c, spot) for bucket, c, spot in step.where]
        marginals += step.marginals
    evidence = [step.evidence for step in steps if step.evidence is not None]
    return BatchStep(
        of_all([step.bound for step in steps]),
        {name: of_all([step.gradient[name] for step in steps]) for name in steps[0].gradient},
        noise,
        marginals,
        Places([where[i] for i in order.tolist()], [width for step in steps for width in step.where.widths]),
        Evidence(of_all([one.triangle for one in evidence]), of_all([one.shift for one in evidence]))
        if evidence
        else None,
    )


Solver = ClientBatch | OneByOne | Parted


@dataclass(frozen=True)
class LocalWork:
    """What clients do in a round.

    Attributes:
        moving: the parameters that clients change themselves, by name (closed-form noise among them).
        groups: the groups whose gradient is wanted.
        optimiser: of the parameters that move and have no closed form.
        steps: M-steps, each after an E-step of `mf_steps` mean-field steps.
        proximal: pull of moving parameters to their `anchors`, in nats for a squared distance of two.
        hyper: prior of what clients learn for themselves, in full for each of them; None for none.
    """

    moving: tuple[str, ...]
    groups: tuple[str, ...]
    optimiser: Adam
    steps: int
    mf_steps: int
    tolerance: float
    proximal: float = 0.0
    hyper: HyperPrior | None = None

    def run(
        self,
        model: GPModel,
        rows: Sequence[Rows],
        values: State,
        memory: Moments,
        anchors: State,
        start: Starts,
        knowledge: KnowledgeOf | None = None,
    ) -> tuple[State, Moments, BatchStep]:
        """Θ of each client after its steps, the state of its optimiser, and the last E-step with its gradient.

        `values`, `memory` and `anchors` hold all clients in a leading dimension; `knowledge` as for a `ClientBatch`.
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
                knowledge=knowledge,
            )
            values, memory = self._move(model, values, memory, anchors, step)
        assert step is not None
        return values, memory, step

    def _move(
        self, model: GPModel, values: State, memory: Moments, anchors: State, step: BatchStep
    ) -> tuple[State, Moments]:
        closed = model.closed_form_noise
        mine = {name: values[name] for name in self.moving if name not in closed}
        gradient = {name: step.gradient[name] for name in mine}
        for name, anchor in anchors.items():
            if name in gradient:
                gradient[name] = gradient[name] - self.proximal * (values[name] - anchor)
        densities = {} if self.hyper is None else self.hyper.densities(model.prior)
        for name, pull in hyperprior.gradient(mine, densities).items():
            gradient[name] = gradient[name] + pull
        moved, memory = self.optimiser.step(mine, gradient, memory, 1 / self.steps) if mine else ({}, memory)
        for name in set(closed) & set(self.moving):
            task = name.removeprefix("noise.")
            if task in step.noise:  # optimial sigma, eq. 20; clients without labels of the task keep theirs
                total, count = step.noise[task]
                best = hyperprior.best_log_noise(total, count, densities.get(name))
                moved[name] = torch.where(count > 0, best, values[name])
        return {**values, **clamped(moved)}, memory
