"""Updates of clients that were solved together: their arrays stay stacked, and are taken apart only if someone looks.

A round of ten thousand clients would otherwise spend its time on cutting stacks into rows and on stacking the rows again. Who
looks at one update sees an ordinary `ClientUpdate`; `Columns` has an array of all of them.

>>> batch = UpdateBatch({"mixing.pulse": torch.tensor([[1.0], [2.0], [3.0]])}, {})
>>> updates = [batch.update(i, 1.0, {"pulse": 1}, {}) for i in (2, 0)]
>>> updates[0].arrays["mixing.pulse"]
tensor([3.])
>>> Columns(updates).array("mixing.pulse")
tensor([[3.],
        [1.]])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from polyfed.methods.messages import ClientUpdate, State

Pair = tuple[Tensor, Tensor]
PIECE = 2**18  # numbers of an array, of several clients, that are looked at together: what a cache holds


@dataclass(frozen=True, eq=False)
class Change:
    """What is `now`, less what was `before`, with the clients in their first dimension. Clients keep both, so the difference is
    made for those who are looked at: for all clients at once it would be as large as either."""

    now: Tensor
    before: Tensor

    def __getitem__(self, clients: int | slice | Tensor) -> Tensor:
        return self.now[clients] - self.before[clients]

    def __len__(self) -> int:
        return len(self.now)


@dataclass(frozen=True, eq=False)
class UpdateBatch:
    """Arrays and pooled statistics of several updates, with the clients in their first dimension."""

    arrays: Mapping[str, Tensor | Change]
    pooled: dict[str, Pair]
    _sizes: dict[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def n_bytes(self, update: BatchedUpdate) -> int:
        """Of an update of this batch: the same for all whose tasks and metrics have the same names."""
        names = (*update.counts, "", *update.metrics)
        if names not in self._sizes:
            alike = self.update(update.place, update.weight, update.counts, update.metrics)
            self._sizes[names] = ClientUpdate(alike.arrays, alike.pooled, 1.0, alike.counts, alike.metrics).n_bytes()
        return self._sizes[names]

    def update(self, place: int, weight: float, counts: dict[str, int], metrics: dict[str, float]) -> BatchedUpdate:
        """The update of the client at this place, with what is its own."""
        made = object.__new__(BatchedUpdate)
        made.__dict__.update(batch=self, place=place, weight=weight, counts=counts, metrics=metrics)
        return made


class BatchedUpdate(ClientUpdate):
    batch: UpdateBatch | None = None  # None for a changed copy (dataclasses.replace), which is in no batch any more
    place: int = 0

    @cached_property
    def arrays(self) -> State:  # pyright: ignore[reportIncompatibleVariableOverride]  # made when first asked for
        assert self.batch is not None
        return {name: value[self.place] for name, value in self.batch.arrays.items()}

    @cached_property
    def pooled(self) -> dict[str, Pair]:  # pyright: ignore[reportIncompatibleVariableOverride]
        assert self.batch is not None
        return {name: (total[self.place], count[self.place]) for name, (total, count) in self.batch.pooled.items()}

    def n_bytes(self) -> int:
        batch = batch_of(self)
        return super().n_bytes() if batch is None else batch.n_bytes(self)


def batch_of(update: ClientUpdate) -> UpdateBatch | None:
    """The batch whose arrays are those of this update; None if it has its own, which someone may have changed."""
    own = update.__dict__
    return own.get("batch") if "arrays" not in own and "pooled" not in own else None


class Columns:
    """Arrays and pooled statistics of many updates of one form, each with the clients in its first dimension."""

    def __init__(self, updates: Sequence[ClientUpdate]) -> None:
        self.n = len(updates)
        self._updates = updates
        self._apart: list[tuple[int, ClientUpdate]] = []
        found: dict[int, tuple[UpdateBatch, list[int], list[int]]] = {}
        batches = [batch_of(update) for update in updates]
        first = batches[0] if batches else None
        if first is not None and all(batch is first for batch in batches):  # as a rule, and soon done
            found[0] = first, list(range(self.n)), [update.place for update in updates]  # pyright: ignore[reportAttributeAccessIssue]
            batches = []
        for i, batch in enumerate(batches):
            if batch is None:
                self._apart.append((i, updates[i]))
                continue
            _, here, there = found.setdefault(id(batch), (batch, [], []))
            here.append(i)
            there.append(updates[i].place)  # pyright: ignore[reportAttributeAccessIssue]
        self._parts = [(batch, torch.tensor(here), torch.tensor(there)) for batch, here, there in found.values()]

    def array(self, name: str) -> Tensor:
        """(clients, ...); not to be written to, as it may be the batch itself."""
        return self._gathered(lambda batch: _whole(batch.arrays[name]), lambda update: update.arrays[name])

    def pooled(self, name: str) -> Pair:
        """Sum and count, (clients, ...)."""
        total = self._gathered(lambda batch: batch.pooled[name][0], lambda update: update.pooled[name][0])
        return total, self._gathered(lambda batch: batch.pooled[name][1], lambda update: update.pooled[name][1])

    def pieces(self, *names: str) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Places of clients and some of their arrays, a few clients at a time: large arrays are not copied as a whole."""
        for batch, here, there in self._parts:
            values = [batch.arrays[name] for name in names]
            n = max(1, PIECE // max(1, *(each[0].numel() for each in values)))
            whole = _is_range(there)
            for some in (slice(i, min(i + n, len(here))) for i in range(0, len(here), n)):
                yield here[some], [each[some] if whole else each[there[some]] for each in values]
        for i, update in self._apart:
            yield torch.tensor([i]), [update.arrays[name][None] for name in names]

    def total(self, name: str) -> Tensor:
        """The sum of an array, one client after the other: it does not depend on who was solved with whom."""
        total = torch.zeros_like(self._of(0, name))
        for i in range(self.n):
            total += self._of(i, name)
        return total

    def _of(self, i: int, name: str) -> Tensor:
        update = self._updates[i]
        batch = batch_of(update)
        return update.arrays[name] if batch is None else batch.arrays[name][update.place]  # pyright: ignore[reportAttributeAccessIssue]

    def _gathered(self, stack_of: Callable[[UpdateBatch], Tensor], own: Callable[[ClientUpdate], Tensor]) -> Tensor:
        apart = [own(update) for _, update in self._apart]
        if not self._parts:
            return torch.stack(apart)
        first = stack_of(self._parts[0][0])
        if len(first) == self.n == len(self._parts[0][1]) and all(_is_range(at) for at in self._parts[0][1:]):
            return first
        gathered = first.new_empty(self.n, *first.shape[1:])
        for batch, here, there in self._parts:
            gathered[here] = stack_of(batch)[there]
        if apart:
            gathered[torch.tensor([i for i, _ in self._apart])] = torch.stack(apart)
        return gathered


def _whole(column: Tensor | Change) -> Tensor:
    return column[:] if isinstance(column, Change) else column


def _is_range(places: Tensor) -> bool:
    return torch.equal(places, torch.arange(len(places)))
