"""pFed-Mul's yardsticks: each task alone, each client alone, and all data in one place.

pFed-St is the baseline of Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of
Classification and Regression", KDD 2025, doi:10.1145/3690624.3709341: each task has latents of its own, which is pFed-Mul with
a block-diagonal W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from polyfed.methods.gp.pfed_mul import PFedMul
from polyfed.methods.gp.separate import SeparateTasks


@dataclass(frozen=True)
class PFedSt(SeparateTasks, PFedMul):
    """Options as of `PFedMul`, for each task alone."""

    name: ClassVar[str] = "pfed-st"
    summary: ClassVar[str] = "pFed-Mul for each task alone"

    @property
    def single(self) -> PFedMul:
        return PFedMul(**{option.name: getattr(self, option.name) for option in fields(PFedMul)})


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
