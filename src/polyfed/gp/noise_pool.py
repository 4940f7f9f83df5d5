"""A noise level of its own for each client, and a common distribution from which all are drawn (empirical Bayes).

    σ_c² ~ InverseGamma(ν/2, ν s²/2),    y | f, σ_c² ~ N(f, σ_c²)

With (S, n) the sum of E[(y − f)²] over a client's n labels, the best q(σ_c²) under mean field is again inverse gamma, and what
the E-step needs of it is 1/E[1/σ_c²] = (S + ν s²)/(n + ν): the client's own noise drawn to the common s² as if by ν labels.
With q put in, the bound depends on ν and s² by the marginal likelihood of all S,

    Σ_c log Γ((ν + n)/2) − log Γ(ν/2) + ν/2 log(ν s²/2) − (ν + n)/2 log((ν s² + S)/2)

which two numbers maximise (S/(n s²) is then F-distributed with n and ν degrees of freedom). ν has a weak prior, as few clients
show little of how different they are: log ν ~ N(log 10, 1.5²). For robust regression S is weighted by the E-step, and the rest
is the same.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

STRENGTH = (log(10.0), 1.5)  # mean and standard deviation of log ν
BOX = (-3.0, 9.0)  # of log ν: beyond, noise levels are unrelated, or one
STEPS = 50


def own_log_noise(total: Tensor, count: Tensor, log_scale: Tensor, log_strength: Tensor) -> Tensor:
    """log of (S + ν s²)/(n + ν); without labels, log s².

    >>> none, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    >>> own_log_noise(none, none, log_scale=-one, log_strength=one)
    tensor(-1., dtype=torch.float64)
    """
    strength = log_strength.exp()
    return ((total + strength * log_scale.exp()) / (count + strength)).log()


def log_marginal(total: Tensor, count: Tensor, log_scale: Tensor, log_strength: Tensor) -> Tensor:
    """Σ over the clients of log ∫ InverseGamma(σ²) σ^(−n) exp(−S/2σ²) dσ²."""
    a = 0.5 * log_strength.exp()
    b = a * log_scale.exp()
    each = torch.lgamma(a + 0.5 * count) - torch.lgamma(a) + a * b.log() - (a + 0.5 * count) * (b + 0.5 * total).log()
    return each.sum()


def pooled(
    total: Tensor,
    count: Tensor,
    log_scale: Tensor,
    log_strength: Tensor,
    density: Tensor | None = None,
    weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The best log s² and log ν for the (S, n) of some clients, from these values on.

    Newton's steps on both, halved until they climb. `density` (mean, sd, …) is a prior of log s²; priors have `weight`, the
    share of all clients that these are.
    """
    has = count > 0
    total, count = total[has], count[has]
    if not len(count):
        return log_scale, log_strength

    def value(at: Tensor) -> Tensor:
        prior = ((at[1] - STRENGTH[0]) / STRENGTH[1]).square()
        if density is not None:
            prior = prior + ((at[0] - density[0]) / density[1]).square()
        return log_marginal(total, count, at[0], at[1]) - 0.5 * weight * prior

    low, high = torch.tensor([[-30.0, BOX[0]], [30.0, BOX[1]]], dtype=torch.float64)
    at = torch.stack([log_scale, log_strength]).detach().clamp(low, high)
    for _ in range(STEPS):
        slope = torch.func.grad(value)(at)
        values, vectors = torch.linalg.eigh(torch.func.hessian(value)(at))
        # Away from the top the curvature may have the other sign: its size says how far a step may go in any case.
        step = vectors @ ((vectors.mT @ slope) / values.abs().clamp_min(1e-6))
        now, length = value(at), 1.0
        while length > 1e-8 and value((at + length * step).clamp(low, high)) < now:
            length *= 0.5
        after = (at + length * step).clamp(low, high) if length > 1e-8 else at
        if bool(((after - at).abs() < 1e-10).all()):
            break
        at = after
    return at[0], at[1]
