"""What a client can say of its inputs, and of shared weights, given how many labels it has declared (see evidence_limits.py).

Λ = Ψᵀ(H⁻¹ + K)⁻¹Ψ ⪯ ΨᵀHΨ, so a label adds at the most h‖A‖²‖φ‖² to its trace, and the moments of the personal part are those
of the prior and of a mean that the labels pay for: d'B⁻¹d ≤ Σ h y².
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyfed.gp.components import Products
from polyfed.methods.gp.evidence_limits import LARGEST, NOT_A_PRECISION, is_evidence_of_someone, sizes_of
from polyfed.methods.gp.wide.weight_states import Sent, Server
from polyfed.methods.messages import State

LARGEST_SQUARE = 1e4  # mean square of a feature: a hundred standard deviations
MOST_ROWS = 1000  # for each label: most of them without one, at a client that still learns from it
SLACK = 1e-6  # relative, of what is checked: sums are rounded
FARTHEST = (
    1e4  # ‖φ‖² of a row; on average over all rows that made the components it is one, a constant, the curved part
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
    moments = sent.moments
    if sent.outputs is not None:
        first, second, n = sent.outputs  # sums of outputs, of their squares, and their number
        if bool((n < 0).any() | (second < 0).any() | (first.square() > n * second * (1 + 1e-6)).any()):
            return "its sums of outputs are those of no rows"
    if most is not None:
        trace, norm = map(float, sizes_of(sent.change))
        if trace > (limit := most * FARTHEST):
            return f"its evidence has a trace of {trace:.4g}, and its labels allow {limit:.4g}"
        if norm > (limit := 2.0 * LARGEST * most * FARTHEST**0.5):
            return f"its evidence has a shift of {norm:.4g}, and its labels allow {limit:.4g}"
        found = moments.diagonal(dim1=-2, dim2=-1).sum(-1)
        prior = server.personal.diagonal(dim1=-2, dim2=-1).sum(-1)
        if bool((found > prior * (sizes + LARGEST**2 * most) * (1 + 1e-6)).any()):
            return "the moments of its personal part are larger than its labels allow"
    if bool((torch.linalg.eigvalsh(moments) < -1e-9 * (1.0 + moments.abs().amax((-2, -1)))[:, None]).any()):
        return "the moments of its personal part are not positive semi-definite"
    return None if is_evidence_of_someone(server.sums + sent.change) else NOT_A_PRECISION


def objection_to_products(found: Products, n_labels: int, Q: Tensor) -> str | None:
    """Why no rows of a client with so many labels can have such sums, if none can."""
    n = float(found.count)
    if n < 0 or n != round(n) or n > MOST_ROWS * max(n_labels, 1):
        return f"it has {n:g} rows and {n_labels} labels"
    inner = Q.mT @ found.products
    size = float(inner.abs().max())
    if not torch.allclose(inner, inner.mT, rtol=0, atol=SLACK * size):
        return "its products of inputs are not symmetric"
    if float(inner.trace()) > LARGEST_SQUARE * n * len(Q):
        return f"its features have a mean square above {LARGEST_SQUARE:g} (scale the features)"
    mean = (found.inputs @ Q) / max(n, 1.0)
    scatter = inner - n * torch.outer(mean, mean)  # of its rows around their mean, so positive semi-definite
    scatter.diagonal().add_(SLACK * (size + 1e-300))
    if int(torch.linalg.cholesky_ex(0.5 * (scatter + scatter.mT)).info):
        return "its products of inputs are those of no rows"
    return None
