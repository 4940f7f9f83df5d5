"""pFed-St: pFed-Mul with one task at a time, so that nothing is learned from one task for another.

The baseline of Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of
Classification and Regression", KDD 2025, doi:10.1145/3690624.3709341.

The same options; each task has latents of its own, which is pFed-Mul with a block-diagonal W.
"""

from __future__ import annotations

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
