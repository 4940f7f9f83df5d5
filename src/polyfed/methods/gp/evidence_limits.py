"""What a client's evidence of shared functions can be at the most, given how many labels it has declared.

Λ = Φᵀ(H⁻¹ + C)⁻¹Φ ⪯ ΦᵀHΦ, and ‖Φ_j‖² is at most the prior variance of the shared part of row j. So a label of a task adds at
the most e = max_y Σ_rows h Σ_b a_b² φ₀_b to the trace, with the largest h that its likelihood knows, and a change of Λ since
the last turn adds no more than Λ itself. η has no such limit of its own, but that of pseudo-labels y of a sane size:
‖η‖ ≤ Σ h |y| ‖Φ_j‖ ≤ |y| √(Σh · e), once for what it takes back and once for what it says anew.

Evidence adds up, so it is held to these limits, and never shortened to the norm of others: many labels rightly say more. A
server that keeps nothing by client cannot hold the sum of all changes of one client to them, only each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import torch
from torch import Tensor

from polyfed.gp import Evidence
from polyfed.gp.linalg import NotPositiveDefinite, cholesky
from polyfed.methods.gp.model import GPModel
from polyfed.methods.messages import State

LARGEST = 50.0  # of a label, in standard deviations of its task, on average over the labels of a client
ROUNDING = 1e-7  # of the largest entry, by which a sum of evidence may fall below zero


def limits_of(model: GPModel) -> State:
    """Task → Σ_rows h A Aᵀ of one label, for each class that it may have and noise one; tasks without a limit are left out."""
    limits: State = {}
    for task, likelihood in model.likelihoods.items():
        if isfinite(likelihood.most_precise):
            A = likelihood.pattern(torch.arange(likelihood.n_outputs, dtype=torch.float64))
            limits[task] = likelihood.power * likelihood.most_precise * (A.mT @ A)
    return limits


def too_much(
    theta: State, n_shared: int, limits: Mapping[str, Tensor], counts: Mapping[str, int], change: Evidence
) -> str | None:
    """Why a client with these labels cannot have changed its evidence so under this Θ, if it cannot."""
    trace, shift = 0.0, 0.0
    amplitudes = torch.stack([theta[f"kernels.{b}.log_amplitude"] for b in range(n_shared)]).exp()
    for task, count in counts.items():
        if not count:
            continue
        if task not in limits:
            return None
        W, noise = theta[f"mixing.{task}"][:, :n_shared], theta.get(f"noise.{task}")
        h = limits[task] if noise is None else limits[task] / noise.exp()
        of_label = float((h * ((W * amplitudes) @ W.mT)).sum((-2, -1)).max())
        precision = float(h.diagonal(dim1=-2, dim2=-1).sum(-1).max())
        trace += count * of_label
        shift += count * (precision * of_label) ** 0.5
    width = change.shift.shape[-1]
    places = torch.arange(1, width + 1).cumsum(0) - 1  # of the diagonal in a triangle
    found = float(change.triangle[places].sum())
    if found > trace * (1.0 + 1e-6):
        return f"its evidence has a trace of {found:.4g}, and its {sum(counts.values())} labels allow {trace:.4g}"
    norm, allowed = float(change.shift.norm()), 2.0 * LARGEST * shift
    if norm > allowed:
        return f"its evidence has a shift of {norm:.4g}, and its {sum(counts.values())} labels allow {allowed:.4g}"
    return None


def is_evidence_of_someone(sums: Evidence) -> bool:
    """Whether these could be sums of evidence: Σ Λ is positive semi-definite, up to rounding."""
    total = sums.precision
    total.diagonal().add_(ROUNDING * (1.0 + float(total.abs().max())))
    try:
        cholesky(total)
    except NotPositiveDefinite:
        return False
    return True
