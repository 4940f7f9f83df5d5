"""Rows whose sites never change are eliminated once: what is left of inference is over the others alone.

A Gaussian task has the same site at every mean-field step. With those rows first (index 0) and all others after them
(index 1), f₁ given the labels of the first is again Gaussian, with

    Y = K₁₀ S₀ L₀⁻ᵀ,   K₁ = K₁₁ − Y Yᵀ,   m₁ = Y L₀⁻¹ S₀⁻¹ r₀        (L₀ L₀ᵀ = I + S₀ K₀₀ S₀)

and each step solves a problem of that smaller size. The factor of the whole, B = L Lᵀ, has the blocks L₀, S₁ Y and L₁, so
that the full posterior at the end costs no factorisation more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.gp.linalg import (
    Gaussian,
    NotPositiveDefinite,
    cholesky,
    gaussian_from_factor,
    not_positive_definite,
    solve,
)


@dataclass(frozen=True)
class PartialPosterior:
    """q(f) as far as the next step needs it.

    The variance of the eliminated rows is left at zero: their sites do not depend on it, and their local bound is linear in
    it with slope −½ h, so that it drops out of the bound.
    """

    r: Tensor
    h: Tensor
    alpha: Tensor
    m: Tensor
    v: Tensor
    log_det: Tensor  # ½ log|B|
    L1: Tensor

    @property
    def minus_kl(self) -> Tensor:
        return 0.5 * (self.h * self.v - self.alpha * self.m).sum(-1) - self.log_det


class Elimination:
    """Rows whose sites never change are eliminated once: what is left of inference is over the others alone."""

    def __init__(self, K: Tensor, h0: Tensor, r0: Tensor) -> None:
        n = h0.shape[-1]
        with torch.no_grad():
            self.K, self.h0, self.r0 = K, h0, r0
            self.s0 = h0.sqrt()
            B0 = (self.s0[..., :, None] * K[..., :n, :n]).mul_(self.s0[..., None, :])
            B0.diagonal(dim1=-2, dim2=-1).add_(1.0)
            self.L0 = cholesky(B0)
            seen = h0 > 0
            u0 = torch.where(seen, r0 / torch.where(seen, self.s0, 1.0), 0.0)
            both = torch.cat([self.s0[..., :, None] * K[..., :n, n:], u0[..., None]], -1)
            solved = torch.linalg.solve_triangular(self.L0, both, upper=False)
            self.Y, self.w0 = solved[..., :-1].mT, solved[..., -1:]
            self.K1 = K[..., n:, n:] - self.Y @ self.Y.mT
            self.m1 = (self.Y @ self.w0)[..., 0]
            self.log_det0 = self.L0.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def fits(self, h: Tensor, r: Tensor) -> bool:
        """Whether these sites have the eliminated part in common with those of this elimination."""
        n = self.h0.shape[-1]
        return torch.equal(h[..., :n], self.h0) and torch.equal(r[..., :n], self.r0)

    def step(self, h: Tensor, r: Tensor) -> PartialPosterior:
        """The posterior of these sites."""
        n = self.h0.shape[-1]
        h1, r1 = h[..., n:], r[..., n:]
        try:
            q1 = solve(self.K1, r1 - h1 * self.m1, h1)
        except NotPositiveDefinite as error:
            raise not_positive_definite(error.row + n, error.batch) from None
        with torch.no_grad():
            half = self.w0 - self.Y.mT @ q1.alpha[..., None]
            alpha0 = self.s0 * torch.linalg.solve_triangular(self.L0.mT, half, upper=True)[..., 0]
            alpha = torch.cat([alpha0, q1.alpha], -1)
            m = (self.K @ alpha[..., None])[..., 0]
            log_det = self.log_det0 + q1.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return PartialPosterior(r, h, alpha, m, torch.cat([torch.zeros_like(alpha0), q1.v], -1), log_det, q1.L)

    def complete(self, q: PartialPosterior) -> Gaussian:
        """The whole posterior."""
        n = self.h0.shape[-1]
        with torch.no_grad():
            L = torch.zeros_like(self.K)
            L[..., :n, :n] = self.L0
            torch.mul(q.h[..., n:, None].sqrt(), self.Y, out=L[..., n:, :n])
            L[..., n:, n:] = q.L1
            return gaussian_from_factor(self.K, q.r, q.h, L, q.alpha, q.m)
