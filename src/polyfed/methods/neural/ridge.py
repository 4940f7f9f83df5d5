"""Ridge regression from second moments alone: what many clients add up is all that one who had their rows would need.

M = Σ z zᵀ with z = (φ, t): features, of which the last is 1, and targets. Its blocks are A = Σ φφᵀ, b = Σ φtᵀ and Σ ttᵀ, and
the last entry of A is the number of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PENALTIES = tuple(10.0 ** (k / 2) for k in range(-6, 9))  # among which cross-validation chooses
SLACK = 1e-6  # relative, of what is checked: sums are rounded


class Ridge(NamedTuple):
    """The coefficients V (features, targets), (A + λI)⁻¹, and λ."""

    head: Tensor
    inverse: Tensor
    penalty: float


def moments(features: Tensor, targets: Tensor) -> Tensor:
    z = torch.cat([features, targets], 1)
    return z.T @ z


def ridge(M: Tensor, width: int, penalty: float | None) -> Ridge:
    """(A + λI) V = b; without a penalty, λ by generalised cross-validation.

    GCV (Golub, Heath, Wahba, Technometrics 1979) is n RSS / (n − df)² with df = tr A (A + λI)⁻¹: leave-one-out error with an
    average leverage for all rows. It needs no rows, only M.
    """
    eigenvalues, Q = torch.linalg.eigh(M[:width, :width])
    eigenvalues, b = eigenvalues.clamp_min(0.0), Q.T @ M[:width, width:]
    n, total = M[width - 1, width - 1], M[width:, width:].trace()

    def score(candidate: float) -> float:
        scaled = b / (eigenvalues + candidate)[:, None]
        rss = total - 2 * (b * scaled).sum() + (eigenvalues[:, None] * scaled.square()).sum()
        free = n - (eigenvalues / (eigenvalues + candidate)).sum()
        return float(n * rss.clamp_min(0.0) / free.square())

    chosen = min(PENALTIES, key=score) if penalty is None else penalty
    inverse = (Q / (eigenvalues + chosen)) @ Q.T
    return Ridge(Q @ (b / (eigenvalues + chosen)[:, None]), inverse, chosen)


def held_out(features: Tensor, targets: Tensor, fit: Ridge) -> Tensor:
    """What each row would be predicted as, had it been left out; exact, for rows that are part of the fit.

    (Φv − h t) / (1 − h) with the leverage h = φᵀ (A + λI)⁻¹ φ, by Sherman and Morrison.
    """
    leverage = ((features @ fit.inverse) * features).sum(1, keepdim=True)
    return (features @ fit.head - leverage * targets) / (1 - leverage)


def objection_to(M: Tensor, n: float, bounds: Tensor, place: int) -> str | None:
    """Why M cannot be the moments of n rows whose mean squares are within `bounds`; the entry at `place` is their number."""
    if not M.any():
        return None  # nothing was added
    if not torch.allclose(M, M.T, rtol=0, atol=SLACK * float(M.abs().max())):
        return "is not symmetric"
    if abs(float(M[place, place]) - n) > SLACK * n:
        return f"says {float(M[place, place]):g} labels where {n:g} were declared"
    over = M.diagonal() > n * bounds * (1 + SLACK)
    if over.any():
        k = int(over.nonzero()[0])
        return f"has a mean square of {float(M[k, k]) / n:g} at {k}, above {float(bounds[k]):g}"
    jitter = SLACK * float(M.diagonal().max()) * torch.eye(len(M), dtype=M.dtype)
    if int(torch.linalg.cholesky_ex(M + jitter).info):
        return "is not positive semi-definite"
    return None
