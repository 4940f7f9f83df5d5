"""What a client's evidence of shared functions can be at the most, given how many labels it has declared.

Λ = Φᵀ(H⁻¹ + C)⁻¹Φ ⪯ ΦᵀHΦ, and ‖Φ_j‖² is at most the prior variance of the shared part of row j. So a label of a task adds at
the most e = max_y Σ_rows h Σ_b a_b² φ₀_b to the trace, with the largest h that its likelihood knows, and a change of Λ since
the last turn adds no more than Λ itself. η has no such limit of its own, but that of pseudo-labels y of a sane size:
‖η‖ ≤ Σ h |y| ‖Φ_j‖ ≤ |y| √(Σh · e), once for what it takes back and once for what it says anew.

Evidence adds up, so it is held to these limits, and never shortened to the norm of others: many labels rightly say more. A
server that keeps nothing by client cannot hold the sum of all changes of one client to them, only each by itself.

Of wide inputs (wide/), Λ = Ψᵀ(H⁻¹ + K)⁻¹Ψ ⪯ ΨᵀHΨ, so a label adds at the most h‖A‖²‖φ‖² to its trace, and the moments of the
personal part are those of the prior and of a mean that the labels pay for: d'B⁻¹d ≤ Σ h y².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from polyfed.errors import NumericalError
from polyfed.gp import Evidence
from polyfed.gp.components import Products
from polyfed.methods.gp.model import GPModel
from polyfed.methods.gp.wide.weight_states import Sent, Server
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


def checked(sums: Evidence) -> Evidence:
    """Those of all clients, of whom each may be sound, and all together not."""
    if bool(sums.is_positive(ROUNDING)):
        return sums
    what = "the evidence of all clients is no distribution of the shared functions"
    raise NumericalError(what, remedy="look for clients that send what is not theirs")


LARGEST_SQUARE = 1e4  # mean square of a feature: a hundred standard deviations
MOST_ROWS = 1000  # for each label: most of them without one, at a client that still learns from it
SLACK = 1e-6  # relative, of what is checked: sums are rounded
FARTHEST = (
    1e4  # ‖φ‖² of a row; on average over all rows that made the components it is one, a constant, the curved part
)


def objection_to_weights(server: Server, sent: Sent, counts: Mapping[str, int], sizes: Tensor) -> str | None:
    """Why a client with these labels cannot have said this, if it cannot; `sizes` are those of its personal part."""
    assert server.sums is not None
    moments, having = sent.moments, {task: count for task, count in counts.items() if count}
    if sent.outputs is not None:
        first, second, n = sent.outputs  # sums of outputs, of their squares, and their number
        if bool((n < 0).any() | (second < 0).any() | (first.square() > n * second * (1 + 1e-6)).any()):
            return "its sums of outputs are those of no rows"
    if having.keys() <= server.limits.keys():
        most = 0.0  # Σ h‖A‖² of the labels
        for task, count in having.items():
            h = server.limits[task].diagonal(dim1=-2, dim2=-1).sum(-1).max()
            most += count * float(h / server.noise[task].exp() if task in server.noise else h)
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
    return None if bool((server.sums + sent.change).is_positive(ROUNDING)) else NOT_A_PRECISION


def objection_to_products(found: Products, n_labels: int, Q: Tensor) -> str | None:
    """Why no rows of a client with `n_labels` labels can have such sums, if none can."""
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
