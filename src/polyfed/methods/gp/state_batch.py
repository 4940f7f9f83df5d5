"""States of clients that were solved together: their arrays stay stacked from one round to the next.

Who looks at the state of one client sees an ordinary dictionary of arrays; who wants those of many asks `States`, and where the
same clients come again in the same order, nothing is taken apart and nothing is put together.

>>> batch = StateBatch(ClientColumns({"noise.pulse": torch.tensor([1.0, 2.0])}))
>>> states = [BatchedState(batch, i) for i in (0, 1)]
>>> states[1]["personal/noise.pulse"], States(states).stacked().personal
(tensor(2.), {'noise.pulse': tensor([1., 2.])})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from polyfed.gp import BatchStep, Evidence
from polyfed.methods.gp.clients import Starts
from polyfed.methods.gp.states import ClientColumns, ClientRows, Marginal
from polyfed.methods.messages import State


@dataclass(frozen=True, eq=False)
class StateBatch:
    """Several states, with the clients in the first dimension of `columns`; and the E-steps from which to go on."""

    columns: ClientColumns
    warm: BatchStep | None = None
    taught: BatchStep | None = None

    @cached_property
    def arrays(self) -> State:
        return self.columns.to_arrays()

    def has(self, n_clients: int) -> bool:
        """Whether it is one of so many clients."""
        steps = [len(step.where) for step in (self.warm, self.taught) if step is not None]
        return all(n == n_clients for n in steps or [len(column) for column in self.arrays.values()])

    def states(self, n: int, held_out: Sequence[Tensor], apart: Evidence | None) -> list[BatchedState]:
        """The states of so many clients; masks and evidence that is not to stay stacked go to each by itself."""
        if not held_out and apart is None:
            return [BatchedState(self, i) for i in range(n)]
        masks = [ClientRows(held_out=mask).to_arrays() for mask in held_out] or [{}] * n
        stacks = ClientColumns(evidence=apart).to_arrays().items()
        return [BatchedState(self, i, mask | {k: v[i].clone() for k, v in stacks}) for i, mask in enumerate(masks)]


class BatchedState(Mapping[str, Tensor]):
    """The state of a batch at one place, with what is its client's `own` beside; its arrays are made when someone looks."""

    __slots__ = ("_whole", "batch", "own", "place")

    def __init__(self, batch: StateBatch, place: int, own: Mapping[str, Tensor] | None = None) -> None:
        self.batch, self.place, self.own = batch, place, own or {}
        self._whole: State | None = None

    @property
    def whole(self) -> State:
        if self._whole is None:
            columns = {name: value[self.place] for name, value in self.batch.arrays.items()}
            rows = ClientRows(self._end_of(self.batch.warm), self._end_of(self.batch.taught))
            self._whole = {**columns, **rows.to_arrays(), **self.own}
        return self._whole

    def _end_of(self, step: BatchStep | None) -> Marginal | None:
        return None if step is None else Marginal(*step.marginals_of(self.place))

    def __getitem__(self, name: str) -> Tensor:
        return self.whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    def __or__(self, other: Mapping[str, Tensor]) -> State:
        return {**self.whole, **other}

    def __ror__(self, other: Mapping[str, Tensor]) -> State:
        return {**other, **self.whole}

    def __repr__(self) -> str:
        return repr(self.whole)

    def __reduce__(self) -> tuple[Any, ...]:  # another process gets this state, not those of the whole batch
        return dict, (self.whole,)


class States:
    """The states of many clients, with a leading dimension."""

    def __init__(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        self._states, self._batch = states, _common(states)

    @property
    def stay_together(self) -> bool:
        """Whether they come from one batch, or from none: then large arrays may stay stacked. Else some clients of a batch come
        again long before others, and a stack would stay as long as the last of them."""
        return self._batch is not None or not any(isinstance(state, BatchedState) for state in self._states)

    def stacked(self, otherwise: ClientColumns | None = None) -> ClientColumns:
        """The arrays that the first client has, and those of `otherwise`, which stand in where a client has none."""
        instead = {} if otherwise is None else otherwise.to_arrays()
        known = {} if self._batch is None else self._batch.arrays
        names = known or {name: None for name in self._states[0] if ClientColumns.field_of(name)}
        missing = [name for name in (names | instead) if name not in known]
        return ClientColumns.from_arrays(known | {name: self._gathered(name, instead.get(name)) for name in missing})

    def _gathered(self, name: str, otherwise: Tensor | None) -> Tensor:
        if otherwise is None:
            return torch.stack([state[name] for state in self._states])
        values = [state.get(name) for state in self._states]
        if all(value is None for value in values):
            return otherwise
        return torch.stack([otherwise[i] if value is None else value for i, value in enumerate(values)])

    @property
    def warm(self) -> Starts:
        """The marginals at which the last E-steps ended, to start from; None for clients that had none."""
        known = None if self._batch is None else self._batch.warm
        return [rows.warm for rows in self._rows] if known is None else known

    @property
    def taught(self) -> Starts:
        """The same of the labels that features are learned from."""
        known = None if self._batch is None else self._batch.taught
        return [rows.taught for rows in self._rows] if known is None else known

    @property
    def held_out(self) -> list[Tensor]:
        """The inputs that each holds out from the features."""
        return [rows.held_out for rows in self._rows if rows.held_out is not None]

    @cached_property
    def _rows(self) -> list[ClientRows]:
        return [ClientRows.from_arrays(state) for state in self._states]


def _common(states: Sequence[Mapping[str, Tensor]]) -> StateBatch | None:
    """The batch of which these are the first, the second and so on to the last."""
    batch = getattr(states[0], "batch", None)
    same = all(isinstance(s, BatchedState) and s.batch is batch and s.place == i for i, s in enumerate(states))
    return batch if isinstance(batch, StateBatch) and same and batch.has(len(states)) else None
