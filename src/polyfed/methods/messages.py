"""What travels: flat dictionaries of arrays, and the one type that may leave a client.

>>> update = ClientUpdate({"mixing.pulse": torch.zeros(1, 2)}, weight=30.0, counts={"pulse": 30})
>>> update.n_bytes() == len(to_bytes(update.wire()))
True
>>> ClientUpdate.from_wire(from_bytes(to_bytes(update.wire()))).counts
{'pulse': 30}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from safetensors.torch import load, save
from torch import Tensor

# Server states, client states and downloads alike: name → array. Nothing else is ever stored or sent.
State = dict[str, Tensor]
PREPARING = "preparing"  # a metric of rounds in which nothing is learned yet: they say nothing about whether to stop


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """The only type that leaves a client: never inputs, labels, inducing inputs, posteriors or personal parameters.

    Attributes:
        arrays: changes or gradients of the shared parameters, by name.
        pooled: name → (sum, count) of statistics that the server adds up over the clients; neither is ever negative.
        weight: number of training labels behind it.
        counts: task → number of training labels; zero for a task that the client does not have.
        metrics: numbers to watch, such as the client's bound.
    """

    arrays: State
    pooled: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    weight: float = 1.0
    counts: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    def n_bytes(self) -> int:
        """The length of `to_bytes(self.wire())`, which follows from names, shapes and types alone."""
        return n_bytes(self.wire())

    def wire(self) -> State:
        """All of it as one flat dictionary, as it is sent."""
        return {
            **{f"arrays/{name}": value for name, value in self.arrays.items()},
            **{f"sum/{name}": total for name, (total, _) in self.pooled.items()},
            **{f"count/{name}": count for name, (_, count) in self.pooled.items()},
            "weight": scalar(self.weight),
            # By position: the format forgets the order of names, and methods number the tasks by it.
            **{f"labels/{i}/{task}": scalar(count) for i, (task, count) in enumerate(self.counts.items())},
            **{f"metrics/{name}": scalar(value) for name, value in self.metrics.items()},
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Tensor]) -> ClientUpdate:
        parts: dict[str, State] = {kind: {} for kind in ("arrays", "sum", "count", "labels", "metrics", "weight")}
        for name, value in wire.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = value
        labels = sorted(parts["labels"], key=lambda name: int(name.partition("/")[0]))
        return cls(
            parts["arrays"],
            {name: (total, parts["count"][name]) for name, total in parts["sum"].items()},
            float(parts["weight"][""]),
            {name.partition("/")[2]: int(parts["labels"][name]) for name in labels},
            {name: float(value) for name, value in parts["metrics"].items()},
        )


def strip_prefix(state: Mapping[str, Tensor], prefix: str) -> State:
    """The entries under one prefix, `prefix/name`, by their plain names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}


def under(state: Mapping[str, Tensor], *prefixes: str) -> State:
    """The entries under any of these prefixes, by their full names."""
    return {name: value for name, value in state.items() if name.partition("/")[0] in prefixes}


def with_prefix(prefix: str, values: Mapping[str, Tensor]) -> State:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def client_key(client: str) -> int:
    """A client's name as a number, for the server's state: a client can have any name. A double can hold it."""
    return int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "little") >> 11


def to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """As it travels and as it is stored: safetensors, never pickle."""
    # Copies: safetensors rejects arrays that share memory.
    return save({name: value.detach().clone().contiguous() for name, value in state.items()})


def from_bytes(content: bytes) -> State:
    return load(content)


def n_bytes(state: Mapping[str, Tensor]) -> int:
    """The length of `to_bytes(state)`, without making it."""
    return _length(tuple((name, value.dtype, value.shape) for name, value in state.items()))


@lru_cache(maxsize=1024)
def _length(signature: tuple[tuple[str, torch.dtype, torch.Size], ...]) -> int:
    return len(save({name: torch.zeros(shape, dtype=dtype) for name, dtype, shape in signature}))


def scalar(value: float) -> Tensor:
    """A number as states and updates have it."""
    return torch.tensor(float(value), dtype=torch.float64)


def scalars(total: float, count: float) -> tuple[Tensor, Tensor]:
    """A pooled statistic that is a number."""
    return scalar(total), scalar(count)


NOTHING = scalars(0.0, 0.0)  # pooled of clients that have no part in it
