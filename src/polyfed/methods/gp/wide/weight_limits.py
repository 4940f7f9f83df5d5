"""What a client can say of shared weights at the most, given how many labels it has declared (see evidence_limits.py).

Λ = Ψᵀ(H⁻¹ + K)⁻¹Ψ ⪯ ΨᵀHΨ, so a label adds at the most h‖A‖²‖φ‖² to its trace, and the moments of the personal part are those
of the prior and of a mean that the labels pay for: d'B⁻¹d ≤ Σ h y².
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyfed.methods.gp.evidence_limits import LARGEST, is_evidence_of_someone
from polyfed.methods.gp.wide.weight_states import Sent, Server
from polyfed.methods.messages import State

FARTHEST = (
    1e4  # ‖φ‖² of a row; on average over all rows that made the components it is one, a constant, and the curved part
)


def precisions(limits: Mapping[str, Tensor], noise: State, counts: Mapping[str, int]) -> float | None:
    """Σ h‖A‖² of so many labels at the most; None where a task of theirs has no limit."""
    most = 0.0
    for task, count in counts.items():
        if count and task not in limits:
            return None
        if count:
            h = limits[task].diagonal(dim1=-2, dim2=-1).sum(-1).max()
            most += count * float(h / noise[task].exp() if task in noise else h)
    return most


def objection(most: float | None, server: Server, sent: Sent, sizes: Tensor) -> str | None:
    """Why labels of so much precision cannot have said this, if they cannot."""
    assert server.sums is not None
    change, moments = sent.change, sent.moments
    if most is not None:
        width = change.shift.shape[-1]
        diagonal = torch.arange(1, width + 1).cumsum(0) - 1  # its places in a triangle
        trace, norm = float(change.triangle[diagonal].sum()), float(change.shift.norm())
        if trace > most * FARTHEST:
            return f"its evidence has a trace of {trace:.4g}, and its labels allow {most * FARTHEST:.4g}"
        if norm > 2.0 * LARGEST * most * FARTHEST**0.5:
            return (
                f"its evidence has a shift of {norm:.4g}, and its labels allow {2 * LARGEST * most * FARTHEST**0.5:.4g}"
            )
        found = moments.diagonal(dim1=-2, dim2=-1).sum(-1)
        prior = server.personal.diagonal(dim1=-2, dim2=-1).sum(-1)
        if bool((found > prior * (sizes + LARGEST**2 * most) * (1 + 1e-6)).any()):
            return "the moments of its personal part are larger than its labels allow"
    if bool((torch.linalg.eigvalsh(moments) < -1e-9 * (1.0 + moments.abs().amax((-2, -1)))[:, None]).any()):
        return "the moments of its personal part are not positive semi-definite"
    if not is_evidence_of_someone(server.sums + change):
        return "with its evidence, the precision of the shared functions would no longer be positive definite"
    return None


def objection_to_outputs(outputs: Tensor) -> str | None:
    """Of sums of outputs, of their squares, and their number."""
    first, second, n = outputs
    if bool((n < 0).any() | (second < 0).any() | (first.square() > n * second * (1 + 1e-6)).any()):
        return "its sums of outputs are those of no rows"
    return None
