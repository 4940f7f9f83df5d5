"""Rows whose prior covariance is one dense matrix, of any origin: their posterior, and the bound of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp import compiled
from polyfed.gp.linalg import (
    Gaussian,
    NotPositiveDefinite,
    cholesky,
    gaussian_from_factor,
    log_z,
    not_positive_definite,
    solve,
)
from polyfed.gp.meanfield import Marginals, Posterior
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.inference import Solution
    from polyfed.gp.knowledge import Knowledge
    from polyfed.gp.lmc import Latents


class DenseModel:
    """The covariance K of the rows with its graph, all else of the prior being its noise; `solve` turns sites into a
    posterior."""

    latents: Latents | None = None  # what compiled code makes K from, where it can
    K: Tensor
    rows: Rows  # around all that is known of them before their labels; `plain` lack what they get about shared latents
    knowledge: Knowledge | None = None  # what the rows receive about shared latents

    def __init__(self, prior: Prior, rows: Rows, K: Tensor | None = None) -> None:
        """Without `K`, a subclass makes it and the rows when they are first asked for."""
        self.prior, self.plain = prior, rows
        if K is not None:
            self.K, self.rows = K, rows
        self._eliminated: Elimination | None = None

    def infer_at_once(
        self, start: Marginals | None, *, of_f: bool, tolerance: float, max_steps: int, accelerate: bool
    ) -> Posterior | None:
        """All of inference, compiled; None if it has to be done step by step."""
        solver = None if self.plain.is_weighted else compiled.solver()  # compiled sums know no weights
        if solver is None or (layout := solver.layout_of(self.plain)) is None:
            return None
        wanted = torch.is_grad_enabled() and any(value.requires_grad for value in self.prior.parameters.values())
        q = solver.solve_model(self, layout, start, of_f, tolerance, max_steps, accelerate, wanted)
        return Posterior(q, q.history, q.converged)

    def prior_marginals(self) -> tuple[Float[Tensor, "*batch N"], Float[Tensor, "*batch N"]]:
        """Mean and variance of f̃ before any label: where inference starts if it has nothing better."""
        v = self.K.detach().diagonal(dim1=-2, dim2=-1).clone()
        return torch.zeros_like(v), v

    def solve(self, h: Float[Tensor, "*batch N"], r: Float[Tensor, "*batch N"]) -> Gaussian:
        """The posterior of these sites."""
        return self.complete(self.step(h, r))

    def step(self, h: Tensor, r: Tensor) -> Gaussian | PartialPosterior:
        """As much of it as the next step of inference needs; less than all where some sites never change."""
        n, K = self.rows.n_fixed, self.K.detach()
        try:
            if n in (0, len(self.rows)):
                return solve(K, r, h)
            if self._eliminated is None or not self._eliminated.fits(h, r):
                self._eliminated = Elimination(K, h[..., :n], r[..., :n])
            return self._eliminated.step(h, r)
        except NotPositiveDefinite as error:
            raise self.named(error) from None

    def named(self, error: NotPositiveDefinite) -> NotPositiveDefinite:
        """The same error with the client and the task of its row."""
        task = self.plain.task_of(error.batch * len(self.plain) + error.row)
        client = f"client {error.batch} of the batch, " if self.plain.batch_shape else ""
        return error.named(f"{client}task {task!r}", self.prior.broken())

    def complete(self, q: Gaussian | PartialPosterior | Solution) -> Gaussian:
        """The whole posterior: what gradients and predictions need beyond what inference does."""
        if not isinstance(q, PartialPosterior):
            return q  # pyright: ignore[reportReturnType]  # a solution answers as a Gaussian does
        assert self._eliminated is not None
        return self._eliminated.complete(q)

    def bound(self, q: Gaussian | PartialPosterior | Solution) -> Tensor:
        """The ELBO of q (elbo-r, eq. 15), differentiable in Θ; one value for each client.

        −KL(q‖p) = logZ − E_q[rᵀf − ½fᵀHf], so terms (a) to (d) collapse into logZ + Σ (ℓ − r m + ½ h E[f²]). Sites and
        moments enter as constants: at the fixed point of inference their own derivatives vanish (envelope theorem), so
        the gradient of this expression, that of logZ and of ℓ in noise and prior mean, is the whole gradient of the bound.
        """
        value = q.minus_kl + self.rows.local_bound(self.prior, q.m, q.v)
        if torch.is_grad_enabled() and (slope := getattr(q, "slope", None)) is not None:
            value = value + slope()
        elif torch.is_grad_enabled():
            logz = log_z(self.K, q.r, q.h, self.complete(q))
            value = value + (logz - logz.detach())  # zero, with the gradient of logZ
        return value


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
    """Rows whose sites never change are eliminated once: what is left of inference is over the others alone.

    A Gaussian task has the same site at every mean-field step. With those rows first (index 0) and all others after them
    (index 1), f₁ given the labels of the first is again Gaussian, with

        Y = K₁₀ S₀ L₀⁻ᵀ,   K₁ = K₁₁ − Y Yᵀ,   m₁ = Y L₀⁻¹ S₀⁻¹ r₀        (L₀ L₀ᵀ = I + S₀ K₀₀ S₀)

    and each step solves a problem of that smaller size. The factor of the whole, B = L Lᵀ, has the blocks L₀, S₁ Y and L₁, so
    that the full posterior at the end costs no factorisation more.
    """

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
