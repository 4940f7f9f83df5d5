"""Many clients at once: clients of like size are padded to one size and solved as one batch.

Padding is exact (a row with h = 0 changes nothing), so the results are those of a loop over the clients, and they depend
neither on the order of the clients nor on which of them share a bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from polyfed.gp import compiled
from polyfed.gp.exact import ExactModel
from polyfed.gp.knowledge import Evidence, KnowledgeOf
from polyfed.gp.lmc import Distances
from polyfed.gp.meanfield import Marginals, infer
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows, places

# Large enough that calls cost less than arithmetic, small enough that a bucket's few dozen matrices stay within reach; compiled
# code holds the matrices of one client at a time, but for models that only torch can make.
BUCKET_NUMBERS, COMPILED_BUCKET_NUMBERS = 2**19, 2**21
PADDING = 1.15  # the largest client of a bucket has at most this many times the rows of its smallest


def buckets(sizes: Sequence[int], most: int = BUCKET_NUMBERS) -> Iterator[list[int]]:
    """Groups of clients of like size, whose matrices have at most `most` numbers.

    >>> list(buckets([100, 3, 99, 3]))
    [[1, 3], [2, 0]]
    """
    group: list[int] = []
    for client in sorted(range(len(sizes)), key=lambda i: (sizes[i], i)):
        size = max(sizes[client], 1)
        full = (len(group) + 1) * size * size > most
        if group and (full or size > PADDING * max(sizes[group[0]], 1)):
            yield group
            group = []
        group.append(client)
    if group:
        yield group


class Places(list[tuple[int, int, Tensor]]):
    """The bucket of each client, its position in it and its rows there; `widths` has the number of rows of each bucket."""

    def __init__(self, places: Iterable[tuple[int, int, Tensor]], widths: Sequence[int]) -> None:
        super().__init__(places)
        self.widths = list(widths)

    @cached_property
    def flat(self) -> list[tuple[list[int], Tensor, list[int]]]:
        """The clients of each bucket, where their rows lie in a flat vector over it, one after the other, and how many."""
        members: list[list[int]] = [[] for _ in self.widths]
        for i, (bucket, _, _) in enumerate(self):
            members[bucket].append(i)
        found = []
        for clients, width in zip(members, self.widths, strict=True):
            sizes = [len(self[i][2]) for i in clients]
            first = torch.tensor([self[i][1] * width for i in clients]).repeat_interleave(torch.tensor(sizes))
            found.append((clients, first + torch.cat([self[i][2] for i in clients]), sizes))
        return found


@dataclass(frozen=True)
class BatchStep:
    """What the E-step and the gradient of all clients gave: first dimension of every tensor, in the order of the clients.

    `gradient` is ∂bound/∂Θ by name, empty if it was not asked for; `noise` is task → (sum, count), the closed-form noise.
    `marginals` are those of f in each bucket, the warm start of the next step of the same batch. `evidence` is what the rows
    say of latents that are shared; None if none are.
    """

    bound: Tensor
    gradient: dict[str, Tensor]
    noise: dict[str, tuple[Tensor, Tensor]]
    marginals: list[Marginals]
    where: Places
    evidence: Evidence | None = None

    def marginals_alone(self) -> BatchStep:
        """What a later step starts from, and nothing else."""
        return replace(self, gradient={}, noise={}, evidence=None)

    def marginals_of(self, i: int) -> Marginals:
        """(m, v) of the rows of one client."""
        bucket, c, spot = self.where[i]
        m, v = self.marginals[bucket]
        return m[c, spot], v[c, spot]


class ClientBatch:
    """Clients made ready to be solved together, any number of times.

    Clients may lack any task, or have no rows at all.
    """

    def __init__(self, clients: Sequence[Rows]) -> None:
        self.n_clients = len(clients)
        most = BUCKET_NUMBERS if compiled.solver() is None else COMPILED_BUCKET_NUMBERS
        groups = list(buckets([len(rows) for rows in clients], most))
        self.groups = [torch.tensor(group) for group in groups]
        # One bucket, in the order of the clients: nothing to move about.
        self._one = groups == [list(range(self.n_clients))]
        self.stacks: list[tuple[Rows, Distances]] = []
        where: dict[int, tuple[int, int, Tensor]] = {}
        for b, group in enumerate(groups):
            members = [clients[i] for i in group]
            rows = Rows.stack(members)
            self.stacks.append((rows, Distances(rows.x)))
            for c, (i, spot) in enumerate(zip(group, places(members), strict=True)):
                where[i] = (b, c, spot)
        self.where = Places([where[i] for i in range(self.n_clients)], [len(rows) for rows, _ in self.stacks])

    def step(
        self,
        prior: Prior,
        *,
        start: BatchStep | Sequence[Marginals | None] | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 200,
        groups: Sequence[str] = (),
        knowledge: KnowledgeOf | None = None,
    ) -> BatchStep:
        """E-step, bound and gradient of all clients.

        Args:
            prior: one for all clients, or a stacked one with values for each (if they keep personal parameters).
            start: an earlier step of these clients to start from, or the marginals of each client, None where it has none.
            tolerance: and
            max_steps: as in `infer`.
            groups: the groups of Θ whose gradient is wanted.
            knowledge: what each client receives about latents that are shared; asked for bucket by bucket, as it is large.
        """
        gradient, total, count, others = ({} for _ in range(4))
        marginals = []
        for group, (rows, distances), begin in zip(self.groups, self.stacks, self._begin(start), strict=True):
            theta = prior.expand(len(group)) if not prior.is_stacked else prior if self._one else prior.take(group)
            wanted = theta.group(*groups)
            with torch.set_grad_enabled(bool(wanted)):
                model = ExactModel(theta, rows, distances, None if knowledge is None else knowledge(group))
                q = infer(model, start=begin, of_f=True, tolerance=tolerance, max_steps=max_steps).q
                value = model.bound(q)
            grads = torch.autograd.grad(value.sum(), list(wanted.values()), allow_unused=True) if wanted else ()
            for (name, parameter), grad in zip(wanted.items(), grads, strict=True):
                self._keep(gradient, name, group, torch.zeros_like(parameter) if grad is None else grad)
            for task, (sums, counts) in model.rows.noise_statistics(theta, q.m, q.v).items():
                self._keep(total, task, group, sums)
                self._keep(count, task, group, counts)
            self._keep(others, "bound", group, value.detach())
            marginals.append(model.rows.as_f((q.m, q.v)))
            if knowledge is not None:
                for name, array in model.evidence(q).arrays.items():
                    self._keep(others, name, group, array)
        noise = {task: (total[task], count[task]) for task in total}
        bound = others.pop("bound", torch.zeros(0))
        return BatchStep(bound, gradient, noise, marginals, self.where, Evidence(**others) if others else None)

    def _begin(self, start: BatchStep | Sequence[Marginals | None] | None) -> Sequence[Marginals | None]:
        if start is None:
            return [None] * len(self.stacks)
        if isinstance(start, BatchStep):
            if start.where is self.where:
                return start.marginals
            start = [start.marginals_of(i) for i in range(self.n_clients)]
        return self._stacked(start)

    def _stacked(self, of_clients: Sequence[Marginals | None]) -> list[Marginals]:
        """The marginals of each bucket; NaN where a client has none, and where there is no row."""
        stacked = []
        for (rows, _), (clients, flat, sizes) in zip(self.stacks, self.where.flat, strict=True):
            m, v = (torch.full(rows.at.shape, torch.nan, dtype=torch.float64) for _ in range(2))
            sent = [of_clients[i] for i in clients]
            if any(given is not None for given in sent):
                nothing = {n: 2 * (torch.full((n,), torch.nan, dtype=torch.float64),) for n in set(sizes)}
                pairs = [nothing[n] if given is None else given for given, n in zip(sent, sizes, strict=True)]
                m.view(-1)[flat], v.view(-1)[flat] = (torch.cat(each) for each in zip(*pairs, strict=True))
            stacked.append((m, v))
        return stacked

    def _keep(self, store: dict[str, Tensor], name: str, group: Tensor, value: Tensor) -> None:
        """Write the values of a bucket to their clients' places; clients without any keep zero."""
        if self._one:
            store[name] = value
            return
        if name not in store:
            store[name] = value.new_zeros(self.n_clients, *value.shape[1:])
        store[name][group] = value
