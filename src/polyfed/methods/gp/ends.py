"""The two ends of the scale between which every federation lies: nothing is shared, and everything is in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from polyfed.methods.gp.pfed_mul import PFedMul


@dataclass(frozen=True)
class Local(PFedMul):
    """Every client learns all of Θ from its own data alone: pFed-Mul that shares no group."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "no federation: each client learns alone"

    scheme: str | Sequence[str] = ()


@dataclass(frozen=True)
class Pooled(PFedMul):
    """One model of all data in one place, as if all clients were one: what privacy forbids, as a yardstick."""

    name: ClassVar[str] = "pooled"
    summary: ClassVar[str] = "no privacy: one model of all clients' data together"
    pools_data: ClassVar[bool] = True
