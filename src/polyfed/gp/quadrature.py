"""Averages over Gaussians that have no closed form: of the logistic function, and of class probabilities.

**Logistic.** A sigmoid is the distribution function of a logistic variable λ, so softplus, sigmoid and its
derivative, averaged over f ~ N(m, s²), are averages over λ of E(f−λ)₊, P(f > λ) and N(λ | m, s²), all known.
For s ≥ 1 we average over λ (trapezoid: the Gaussian factor is smooth on the scale of its step); for s < 1 over
f (Gauss-Hermite: the sigmoid is smooth on the scale of s). Either way the error is below 1e-8, for any m and s.

**Classes.** The K class outputs of one input are correlated and often of low rank, so their average is taken on
a trapezoid grid in the few directions in which they vary, as fine as each direction needs; where that grid
would be too large, on a scrambled Sobol sequence of fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import ceil, pi, prod, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

GRID_LIMIT = 2**17  # points of a grid; beyond that, Sobol
SOBOL_POINTS = 2**14
CHUNK = 2**22  # numbers held at once by an average over classes
AT_ONCE = 2**14  # rows whose averages over a logistic function are taken at once


@cache
def gauss_hermite(n: int) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Nodes and weights with Σ w g(z) ≈ E[g(z)], z ~ N(0, 1) (eigenvalues of the Jacobi matrix)."""
    off = torch.arange(1, n, dtype=torch.float64).sqrt()
    z, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return z, vectors[0].square()


@cache
def logistic_nodes() -> tuple[Tensor, Tensor]:
    # Poles of the density at ±iπ and a Gaussian factor e^{π²/2} there: a step of 0.68 leaves
    # exp(π²/2 − 2π·π/0.68) ~ 3e-11. e⁻⁴⁵ is left out at the ends.
    lam = torch.arange(-66, 67, dtype=torch.float64) * 0.68
    weight = 0.68 * torch.sigmoid(lam) * torch.sigmoid(-lam)
    return lam, weight / weight.sum()


def expected_logistic(
    m: Float[Tensor, "*S"], v: Float[Tensor, "*S"]
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """E[softplus(f)], E[sigmoid(f)] and E[sigmoid'(f)] for f ~ N(m, v).

    >>> zero = torch.zeros(1, dtype=torch.float64)
    >>> round(expected_logistic(zero, zero + 400.0)[1].item(), 12)  # by symmetry
    0.5
    """
    m, s = torch.broadcast_tensors(m, v.clamp_min(0.0).sqrt())
    parts = zip(m.reshape(-1).split(AT_ONCE), s.reshape(-1).split(AT_ONCE), strict=True)
    found = zip(*(_by_either(*part) for part in parts), strict=True)
    softplus, mean, slope = (torch.cat(of_parts).reshape(m.shape) for of_parts in found)
    return softplus, mean, slope


def _by_either(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each average where it is needed: the first costs four times as much."""
    wide = s >= 1.0
    if bool(wide.all()):
        return _by_lambda(m, s)
    if not bool(wide.any()):
        return _by_f(m, s)
    some, others = wide.nonzero()[:, 0], (~wide).nonzero()[:, 0]
    order = torch.cat([some, others]).argsort()
    pairs = zip(_by_lambda(m[some], s[some]), _by_f(m[others], s[others]), strict=True)
    softplus, mean, slope = (torch.cat(pair)[order] for pair in pairs)
    return softplus, mean, slope


def _by_lambda(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    lam, p = logistic_nodes()
    s = s[:, None]
    t = (m[:, None] - lam) / s
    density = torch.exp(-0.5 * t.square()) / (s * sqrt(2.0 * pi))
    tail = torch.special.ndtr(t)
    return (p * s * (t * tail + s * density)).sum(-1), (p * tail).sum(-1), (p * density).sum(-1)


def _by_f(m: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z, w = gauss_hermite(32)
    f = m[:, None] + s[:, None] * z
    sigmoid = torch.sigmoid(f)
    softplus = w * torch.nn.functional.softplus(f, threshold=700.0)
    return softplus.sum(-1), (w * sigmoid).sum(-1), (w * sigmoid * torch.sigmoid(-f)).sum(-1)


def expected_sigmoid(m: Float[Tensor, "*S"], v: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """P(y = 1) = E[sigmoid(f)], f ~ N(m, v); not the sigmoid of the mean."""
    return expected_logistic(m, v)[1]


def expected_probabilities(
    to_probabilities: Callable[[Tensor], Tensor], mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"]
) -> Float[Tensor, "N O"]:
    """E[p(f)] for each row of `mean` (N, K) and `cov` (N, K, K), where p maps (..., K) scores to probabilities.

    p must change on the scale of one unit of f, as softmax does. A row's result depends on that row alone,
    never on the others in the call.
    """
    variances, directions = torch.linalg.eigh(cov)
    sd = variances.clamp_min(0.0).sqrt()
    # Half-octaves of sd, from 1; 0 for directions left out: a small sd moves an average by sd²/8 at the most, and
    # below √eps of the largest it is the noise of the eigenvalues.
    varying = sd > torch.clamp_min(1e-6 * sd.amax(-1, keepdim=True), 1e-4)
    fineness = torch.where(varying, (2.0 * torch.log2(sd.clamp_min(0.5))).ceil() + 3.0, 0.0).to(torch.int64)
    out = torch.empty_like(mean)
    for level in torch.unique(fineness, dim=0):
        rows = (fineness == level).all(-1).nonzero()[:, 0]
        varies = level > 0
        root = (directions[rows] * sd[rows, None, :])[:, :, varies]  # f = mean + root z
        z, w = _nodes(tuple(level[varies].tolist()))
        size = max(1, CHUNK // (z.shape[0] * mean.shape[-1]))
        for part in range(0, rows.shape[0], size):
            some = rows[part : part + size]
            f = mean[some][:, None, :] + z @ root[part : part + size].mT
            out[some] = torch.einsum("s,nsk->nk", w, to_probabilities(f))
    return out


@lru_cache(maxsize=256)
def _nodes(fineness: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Nodes (S, d) and weights for an average over d standard normals; direction i has sd ≤ 2^((fineness−3)/2)."""
    steps = [_step(2.0 ** ((n - 3) / 2.0)) for n in fineness]
    halves = [ceil(6.2 / step) for step in steps]
    if prod(2 * half + 1 for half in halves) > GRID_LIMIT:
        return _sobol(len(fineness))
    z = torch.zeros(1, 0, dtype=torch.float64)
    for step, half in zip(steps, halves, strict=True):
        axis = torch.arange(-half, half + 1, dtype=torch.float64) * step
        z = torch.cat([z.repeat_interleave(len(axis), 0), axis.repeat(len(z))[:, None]], 1)
        weight = torch.exp(-0.5 * z.square().sum(-1))
        z = z[weight > 1e-9]  # the corners of the box cost most points and carry no mass
    weight = torch.exp(-0.5 * z.square().sum(-1))
    return z, weight / weight.sum()


def _step(sd: float) -> float:
    # p(mean + sd z) has its poles at distance a = π/(√2 sd) from the real line (scores differ by up to √2 sd), so
    # a step h leaves exp(a²/2 − 2πa/h) of error; h is set so that this is e⁻¹⁵, but never above 0.9.
    a = min(pi / (sqrt(2.0) * sd), 6.0)
    return min(0.9, 2.0 * pi * a / (15.0 + 0.5 * a * a))


@cache
def _sobol(dims: int) -> tuple[Tensor, Tensor]:
    u = torch.quasirandom.SobolEngine(dims, scramble=True, seed=0).draw(SOBOL_POINTS, dtype=torch.float64)
    weight = torch.full((SOBOL_POINTS,), 1.0 / SOBOL_POINTS, dtype=torch.float64)
    return torch.special.ndtri(u.clamp(1e-12, 1.0 - 1e-12)), weight
