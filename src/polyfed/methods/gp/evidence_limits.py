"""What a client's evidence of shared functions can be at the most, given how many labels it has declared.

Λ = Φᵀ(H⁻¹ + C)⁻¹Φ ⪯ ΦᵀHΦ, and ‖Φ_j‖² is at most the prior variance of the shared part of row j. So a label of a task adds at
the most e = max_y Σ_rows h Σ_b a_b² φ₀_b to the trace, with the largest h that its likelihood knows, and a change of Λ since
the last turn adds no more than Λ itself. η has no such limit of its own, but that of pseudo-labels y of a sane size:
‖η‖ ≤ Σ h |y| ‖Φ_j‖ ≤ |y| √(Σh · e), once for what it takes back and once for what it says anew.

Evidence adds up, so it is held to these limits, and never shortened to the norm of others: many labels rightly say more. A
server that keeps nothing by client cannot hold the sum of all changes of one client to them, only each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from polyfed.errors import NumericalError
from polyfed.gp import Evidence
from polyfed.methods.gp.model import GPModel
from polyfed.methods.messages import State

LARGEST = 50.0  # of a label, in standard deviations of its task, on average over the labels of a client
ROUNDING = 1e-7  # of the largest entry, by which a sum of evidence may fall below zero
NOT_A_PRECISION = "with its evidence, the precision of the shared functions would no longer be positive definite"


def limits_of(model: GPModel) -> State:
    """Task → Σ_rows h A Aᵀ of one label, for each class that it may have and noise one; tasks without a limit are left out."""
    limits: State = {}
    for task, likelihood in model.likelihoods.items():
        if isfinite(likelihood.most_precise):
            A = likelihood.pattern(torch.arange(likelihood.n_outputs, dtype=torch.float64))
            limits[task] = likelihood.power * likelihood.most_precise * (A.mT @ A)
    return limits


@dataclass(frozen=True)
class Limits:
    """What one label of each task adds at the most, under one Θ: to the trace of Λ, and to ‖η‖ of a pseudo-label of one."""

    trace: dict[str, float]
    shift: dict[str, float]

    @classmethod
    def under(cls, theta: State, n_shared: int, limits: Mapping[str, Tensor]) -> Limits:
        """From those of noise one (`limits_of`)."""
        amplitudes = torch.stack([theta[f"kernels.{b}.log_amplitude"] for b in range(n_shared)]).exp()
        trace, shift = {}, {}
        for task, limit in limits.items():
            W, noise = theta[f"mixing.{task}"][:, :n_shared], theta.get(f"noise.{task}")
            h = limit if noise is None else limit / noise.exp()
            trace[task] = float((h * ((W * amplitudes) @ W.mT)).sum((-2, -1)).max())
            shift[task] = (float(h.diagonal(dim1=-2, dim2=-1).sum(-1).max()) * trace[task]) ** 0.5
        return cls(trace, shift)

    def too_much(self, counts: Sequence[Mapping[str, int]], change: Evidence) -> list[str | None]:
        """Why clients with these labels cannot have changed their evidence so, (clients, ...), if they cannot."""
        traces, norms = sizes_of(change)
        return [self._too_much(*each) for each in zip(counts, traces.tolist(), norms.tolist(), strict=True)]

    def _too_much(self, counts: Mapping[str, int], trace: float, norm: float) -> str | None:
        having = {task: count for task, count in counts.items() if count}
        if any(task not in self.trace for task in having):
            return None
        most = sum(count * self.trace[task] for task, count in having.items())
        if trace > most * (1.0 + 1e-6):
            return f"its evidence has a trace of {trace:.4g}, and its {sum(counts.values())} labels allow {most:.4g}"
        most = 2.0 * LARGEST * sum(count * self.shift[task] for task, count in having.items())
        if norm > most:
            return f"its evidence has a shift of {norm:.4g}, and its {sum(counts.values())} labels allow {most:.4g}"
        return None


def sizes_of(change: Evidence) -> tuple[Tensor, Tensor]:
    """The trace of Λ and ‖η‖, (...)"""
    diagonal = torch.arange(1, change.shift.shape[-1] + 1).cumsum(0) - 1  # its places in a triangle
    return change.triangle[..., diagonal].sum(-1), change.shift.norm(dim=-1)


def is_evidence_of_someone(sums: Evidence) -> bool:
    """Whether these could be sums of evidence: Σ Λ is positive semi-definite, up to rounding."""
    return bool(sums.is_positive(ROUNDING))


def checked(sums: Evidence) -> Evidence:
    """Those of all clients, of whom each may be sound, and all together not."""
    if is_evidence_of_someone(sums):
        return sums
    raise NumericalError(
        "the evidence of all clients is no distribution of the shared functions",
        remedy="look for clients that send what is not theirs",
    )
