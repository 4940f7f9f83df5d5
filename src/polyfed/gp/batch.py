"""Many clients at once: clients of like size are padded to one size and solved as one batch.

Padding is exact (a row with h = 0 changes nothing), so the results are those of a loop over the clients, and they depend
neither on the order of the clients nor on which of them share a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from polyfed.gp.exact import ExactModel
from polyfed.gp.meanfield import Marginals, infer
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows, places

# A bucket's matrices should stay in the cache: 2^19 numbers are 4 MB, and several matrices live at once.
BUCKET_NUMBERS = 2**20
PADDING = 1.15  # the largest client of a bucket has at most this many times the rows of its smallest


@dataclass(frozen=True)
class ClientStep:
    """What one client's E-step and gradient gave.

    Attributes:
        bound: its ELBO.
        marginals: (m, v) of its rows, the warm start of its next step.
        gradient: ∂bound/∂Θ by name; empty if it was not asked for.
        noise: task → (sum, count), the closed-form noise.
        converged: whether inference reached its tolerance.
    """

    bound: float
    marginals: Marginals
    gradient: dict[str, Tensor]
    noise: dict[str, tuple[float, float]]


def buckets(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Groups of clients of like size, each small enough for the cache.

    >>> list(buckets([100, 3, 99, 3]))
    [[1, 3], [2, 0]]
    """
    group: list[int] = []
    for client in sorted(range(len(sizes)), key=lambda i: (sizes[i], i)):
        size = max(sizes[client], 1)
        full = (len(group) + 1) * size * size > BUCKET_NUMBERS
        if group and (full or size > PADDING * max(sizes[group[0]], 1)):
            yield group
            group = []
        group.append(client)
    if group:
        yield group


def client_steps(
    prior: Prior | Sequence[Prior],
    clients: Sequence[Rows],
    *,
    starts: Sequence[Marginals | None] | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 200,
    groups: Sequence[str] = (),
) -> list[ClientStep]:
    """E-step, bound and gradient of all clients.

    Args:
        prior: one for all clients, or one for each (those that keep personal parameters).
        clients: their rows, over the tasks of the prior; any of them may lack any task, or have no rows at all.
        starts: marginals of an earlier step for each client, or None.
        tolerance: and
        max_steps: as in `infer`.
        groups: the groups of Θ whose gradient is wanted.
    """
    steps: list[ClientStep | None] = [None] * len(clients)
    for group in buckets([len(rows) for rows in clients]):
        rows = Rows.stack([clients[i] for i in group])
        own = [prior] * len(group) if isinstance(prior, Prior) else [prior[i] for i in group]
        spots = places([clients[i] for i in group])
        begin = None if starts is None else _stack_starts([starts[i] for i in group], spots, rows)
        made = _bucket(Prior.stack(own), rows, begin, tolerance, max_steps, groups)
        for i, spot, step in zip(group, spots, made, strict=True):
            m, v = step.marginals
            steps[i] = replace(step, marginals=(m[spot], v[spot]))
    return [step for step in steps if step is not None]


def _bucket(
    prior: Prior, rows: Rows, start: Marginals | None, tolerance: float, max_steps: int, groups: Sequence[str]
) -> Iterator[ClientStep]:
    wanted = prior.group(*groups) if groups else {}
    with torch.set_grad_enabled(bool(wanted)):
        model = ExactModel(prior, rows)
        q = infer(model, start=start, tolerance=tolerance, max_steps=max_steps).q
        bound = model.bound(q)
    grads: dict[str, Tensor] = {}
    if wanted:
        parts = torch.autograd.grad(bound.sum(), list(wanted.values()), allow_unused=True)
        grads = {
            name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(wanted.items(), parts, strict=True)
        }
    noise = rows.noise_statistics(prior, q.m, q.v)
    bounds = bound.detach().tolist()
    pooled = {task: (total.tolist(), count.tolist()) for task, (total, count) in noise.items()}
    for c, value in enumerate(bounds):
        yield ClientStep(
            value,
            (q.m[c], q.v[c]),
            {name: g[c] for name, g in grads.items()},
            {task: (total[c], count[c]) for task, (total, count) in pooled.items() if count[c] > 0},
        )


def _stack_starts(starts: Sequence[Marginals | None], spots: Sequence[Tensor], rows: Rows) -> Marginals | None:
    """Padded starts; None unless every client has one."""
    if any(start is None for start in starts):
        return None
    m, v = rows.A.new_zeros(rows.at.shape), rows.A.new_zeros(rows.at.shape)
    for c, (start, spot) in enumerate(zip(starts, spots, strict=True)):
        assert start is not None
        m[c, spot], v[c, spot] = start
    return m, v
