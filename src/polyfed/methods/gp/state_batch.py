"""States of clients that were solved together: their arrays stay stacked from one round to the next.

Who looks at the state of one client sees an ordinary dictionary of arrays; who wants those of many asks `States`, and where the
same clients come again in the same order, nothing is taken apart and nothing is put together.

>>> batch = StateBatch({"personal/noise.pulse": torch.tensor([1.0, 2.0])}, {})
>>> states = [batch.state(i) for i in (0, 1)]
>>> states[1]["personal/noise.pulse"], States(states).under("personal")
(tensor(2.), {'noise.pulse': tensor([1., 2.])})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyfed.gp import BatchStep
from polyfed.gp.meanfield import Marginals
from polyfed.methods.messages import State, strip_prefix


@dataclass(frozen=True, eq=False)
class StateBatch:
    """Arrays of several states, with the clients in their first dimension; and by label the E-steps from which to go on."""

    columns: State
    steps: Mapping[str, BatchStep]

    def state(self, place: int, own: Mapping[str, Tensor] | None = None) -> BatchedState:
        """The state of the client at this place, with what is its own beside."""
        return BatchedState(self, place, own or {})


class BatchedState(Mapping[str, Tensor]):
    """One state of a batch; its arrays are taken out of it when someone looks at them."""

    __slots__ = ("_whole", "batch", "own", "place")

    def __init__(self, batch: StateBatch, place: int, own: Mapping[str, Tensor]) -> None:
        self.batch, self.place, self.own = batch, place, own
        self._whole: State | None = None

    @property
    def whole(self) -> State:
        if self._whole is None:
            self._whole = {name: value[self.place] for name, value in self.batch.columns.items()}
            for label, step in self.batch.steps.items():
                self._whole[f"{label}/m"], self._whole[f"{label}/v"] = step.marginals_of(self.place)
            self._whole |= self.own
        return self._whole

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

    def gathered(self, name: str, otherwise: Tensor) -> Tensor:
        """The values of one name, and another where a client has none."""
        if self._batch is not None and name in self._batch.columns:
            return self._batch.columns[name]
        values = [state.get(name) for state in self._states]
        if all(value is None for value in values):
            return otherwise.expand(len(values), *otherwise.shape)
        return torch.stack([otherwise if value is None else value for value in values])

    def under(self, label: str) -> State:
        """The values under a label by their plain names; all clients have those of the first."""
        if self._batch is not None:
            return strip_prefix(self._batch.columns, label)
        names = list(strip_prefix(self._states[0], label))
        return {name: torch.stack([state[f"{label}/{name}"] for state in self._states]) for name in names}

    def start(self, label: str) -> BatchStep | list[Marginals | None]:
        """The marginals at which the last E-steps ended, to start from; None for clients that had none."""
        if self._batch is not None and label in self._batch.steps:
            return self._batch.steps[label]
        return [marginals_in(state, label) for state in self._states]


def marginals_in(state: Mapping[str, Tensor], label: str) -> Marginals | None:
    """Where the last E-step of this client ended."""
    return (state[f"{label}/m"], state[f"{label}/v"]) if f"{label}/m" in state else None


def _common(states: Sequence[Mapping[str, Tensor]]) -> StateBatch | None:
    """The batch of which these are the first, the second and so on to the last."""
    batch = getattr(states[0], "batch", None)
    if not isinstance(batch, StateBatch) or any(len(step.where) != len(states) for step in batch.steps.values()):
        return None
    same = all(isinstance(s, BatchedState) and s.batch is batch and s.place == i for i, s in enumerate(states))
    complete = bool(batch.steps) or all(len(column) == len(states) for column in batch.columns.values())
    return batch if same and complete else None
