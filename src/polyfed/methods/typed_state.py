"""States, messages and updates as dataclasses: a field says once under which key its arrays are stored and sent.

>>> from dataclasses import replace
>>> import torch
>>> class Server(TypedState):
...     theta: State = under("theta/")
...     n_clients: Tensor | None = key("clients")
>>> server = Server.from_arrays({"theta/noise.pulse": torch.tensor(0.5), "clients": torch.tensor(3.0)})
>>> server.theta
{'noise.pulse': tensor(0.5000)}
>>> list(replace(server, n_clients=None).to_arrays())
['theta/noise.pulse']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Self, dataclass_transform

from torch import Tensor

from polyfed.methods.messages import State


def key(name: str) -> Any:
    """One array under this key; None where there is none."""
    return field(default=None, metadata={"key": name, "names": [name], "read": lambda parts: parts[""]})


def under(prefix: str) -> Any:
    """Arrays by name, each under the prefix and its name. Under "" are all those that no other field has."""
    return field(default_factory=dict, metadata={"key": prefix, "names": [], "read": dict})


def record(prefix: str, made: type) -> Any:
    """The arrays of a dataclass or named tuple, each under the prefix and its name; None where there are none."""
    names = [prefix + name for name in made.__annotations__]
    return field(default=None, metadata={"key": prefix, "names": names, "read": lambda parts: made(**parts)})


def nested(prefix: str, made: type[TypedState]) -> Any:
    """Another typed state, each of its arrays under the prefix and its own key."""
    return field(default_factory=made, metadata={"key": prefix, "names": [], "read": made.from_arrays})


@dataclass_transform(eq_default=False, frozen_default=True)
@dataclass(frozen=True, eq=False)
class TypedState:
    """Its subclasses are such dataclasses. Arrays may have the clients of a batch in their first dimension."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """From a flat dictionary; names that are no field's are left out."""
        found: dict[str, State] = {}
        for name in _all_names(cls) or arrays:
            owner, rest = _place(cls, name)
            if owner and name in arrays:
                found.setdefault(owner, {})[rest] = arrays[name]
        return cls(**{one.name: one.metadata["read"](found[one.name]) for one in fields(cls) if one.name in found})

    def to_arrays(self) -> State:
        parts = {one.metadata["key"]: _parts(getattr(self, one.name)) for one in fields(self)}
        return {key + name: value for key, part in parts.items() for name, value in part.items()}

    @classmethod
    def field_of(cls, name: str) -> str:
        """The field to which a name belongs; empty if it is no field's."""
        return _place(cls, name)[0]


@lru_cache
def _all_names(cls: type[TypedState]) -> list[str]:
    """The names that it may have, to look for them alone; none where users name some."""
    names = [one.metadata["names"] for one in fields(cls)]
    return [name for some in names for name in some] if all(names) else []


@lru_cache(maxsize=4096)
def _place(cls: type[TypedState], name: str) -> tuple[str, str]:
    """The field of a name, and what of the name is left there."""
    by_key = {one.metadata["key"]: one.name for one in fields(cls)}
    for n in (len(name), name.find("/") + 1, name.find(".") + 1, 0):
        if name[:n] in by_key:
            return by_key[name[:n]], name[n:]
    return "", ""


def _parts(value: object) -> Mapping[str, Tensor]:
    if value is None:
        return {}
    if isinstance(value, Tensor):
        return {"": value}
    if isinstance(value, TypedState):
        return value.to_arrays()
    return value if isinstance(value, Mapping) else {name: getattr(value, name) for name in type(value).__annotations__}
