"""The sparse posterior: M inducing inputs Z stand for all N rows, at a cost that grows with N and not with its cube.

The inducing variables are the latent functions at Z, whitened: g_b(Z) = L_b w_b with k_b(Z, Z) = L_b L_bᵀ. A row is then
f_j = Φ_j w + what Z leaves unsaid, with

    Φ_j = [a_jb L_b⁻¹ k_b(Z, x_j)]_b,      d_j = Σ_b a_jb² (k_b(x_j, x_j) − ‖L_b⁻¹ k_b(Z, x_j)‖²)
    Λ = I + Φᵀ H Φ,   m = Φ Λ⁻¹ Φᵀ r,   v = diag(Φ Λ⁻¹ Φᵀ) + d
    logZ = −½ log|Λ| + ½ ‖L_Λ⁻¹ Φᵀ r‖² − ½ hᵀ d

This bound is never above the exact one. ½ hᵀd, the **certificate**, is what the trace term takes away for certain. For
Gaussian tasks the gap to the exact bound is at most ½ hᵀd + ½ ‖r‖² · (largest residual), so the certificate estimates the
gap and does not bound it; with Z = all inputs both are zero.

Rows are handled in chunks and Φ is never held as a whole, so memory does not grow with N · B M.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from polyfed.gp.linalg import cholesky, jittered_cholesky
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

CHUNK = 4096  # rows handled at once


@dataclass(frozen=True)
class SparseGaussian:
    """q(w) = N(Λ⁻¹Φᵀr, Λ⁻¹) over the whitened inducing variables, and the marginals it gives to the rows."""

    r: Tensor
    h: Tensor
    L: Tensor  # Λ = L Lᵀ
    beta: Tensor  # Λ⁻¹ Φᵀ r
    m: Tensor
    v: Tensor
    logz: Tensor
    certificate: Tensor  # ½ hᵀd

    @property
    def second_moment(self) -> Tensor:
        return self.m.square() + self.v


class SparseModel:
    """Prior, rows and inducing inputs; the same questions as `ExactModel` answers, for one client."""

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor) -> None:
        self.prior, self.rows, self.Z = prior, rows, Z
        self.a = rows.A @ prior.W
        self.z_Z = prior.eta(Z)
        self.roots = [jittered_cholesky(prior.latent_covariance(b, self.z_Z, self.z_Z)) for b in range(prior.n_latents)]

    @property
    def size(self) -> int:
        """The number of inducing variables, B M."""
        return self.prior.n_latents * self.Z.shape[0]

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of f before any label."""
        with torch.no_grad():
            z = self.prior.eta(self.rows.x)
            latent = torch.stack([self.prior.latent_variance(b, z) for b in range(self.prior.n_latents)], -1)
            v = (self.a.square() * latent[self.rows.at]).sum(-1)
        return torch.zeros_like(v), v

    def solve(self, h: Tensor, r: Tensor) -> SparseGaussian:
        with torch.no_grad():
            gram, linear, trace = self._statistics(h, r)
            L = _root(gram)
            beta = torch.cholesky_solve(linear[:, None], L)[:, 0]
            m, v = torch.empty_like(h), torch.empty_like(h)
            for part in self._parts():
                Phi, d = self._features(part)
                m[part] = Phi @ beta
                v[part] = torch.linalg.solve_triangular(L, Phi.mT, upper=False).square().sum(0) + d
            return SparseGaussian(r, h, L, beta, m, v, _log_z(L, linear, trace), trace)

    def bound(self, q: SparseGaussian) -> Tensor:
        """The ELBO of q, differentiable in Θ as that of `ExactModel` is."""
        cancel = (q.r * q.m - 0.5 * q.h * q.second_moment).sum(-1)
        value = q.logz - cancel + self.rows.local_bound(self.prior, q.m, q.v)
        if torch.is_grad_enabled():
            gram, linear, trace = self._statistics(q.h, q.r)
            logz = _log_z(_root(gram), linear, trace)
            value = value + (logz - logz.detach())
        return value

    def predict(self, q: SparseGaussian, x: Tensor) -> LatentPrediction:
        """q(g(x)) at new inputs, with the variance that Z leaves unexplained."""
        z, M = self.prior.eta(x), self.Z.shape[0]
        mean, factors, residual = [], [], []
        for b in range(self.prior.n_latents):
            A, left = self._project(b, z)
            block = slice(b * M, (b + 1) * M)
            mean.append(q.beta[block] @ A)
            wide = A.new_zeros(self.size, A.shape[1])
            wide[block] = A
            factors.append(torch.linalg.solve_triangular(q.L, wide, upper=False))
            residual.append(left)
        V = torch.stack(factors)
        cov = torch.diag_embed(torch.stack(residual, -1)) + torch.einsum("bnx,cnx->xbc", V, V)
        return LatentPrediction(torch.stack(mean, -1), cov, self.prior.mixing())

    # ---- chunks ---------------------------------------------------------------------------------------------------

    def _parts(self) -> list[slice]:
        return [slice(start, start + CHUNK) for start in range(0, len(self.rows), CHUNK)]

    def _project(self, b: int, z: Tensor) -> tuple[Tensor, Tensor]:
        """L_b⁻¹ k_b(Z, z), (M, n), and the variance of g_b(z) that it leaves, (n,)."""
        A = torch.linalg.solve_triangular(self.roots[b], self.prior.latent_covariance(b, self.z_Z, z), upper=False)
        return A, (self.prior.latent_variance(b, z) - A.square().sum(0)).clamp_min(0.0)

    def _features(self, part: slice) -> tuple[Tensor, Tensor]:
        """Φ (n, B M) and d (n,) of some rows."""
        inputs, of_row = torch.unique(self.rows.at[part], return_inverse=True)  # rows of one datum share their input
        z, a = self.prior.eta(self.rows.x[inputs]), self.a[part]
        Phi, d = [], a.new_zeros(len(a))
        for b in range(self.prior.n_latents):
            A, left = self._project(b, z)
            Phi.append(a[:, b, None] * A.mT[of_row])
            d = d + a[:, b].square() * left[of_row]
        return torch.cat(Phi, 1), d

    def _statistics(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ΦᵀHΦ, Φᵀr and ½ hᵀd over all rows. For gradients each chunk is computed anew instead of being kept."""
        gram, linear, trace = h.new_zeros(self.size, self.size), h.new_zeros(self.size), h.new_zeros(())

        def of(part: slice) -> tuple[Tensor, Tensor, Tensor]:
            Phi, d = self._features(part)
            return Phi.mT @ (h[part, None] * Phi), r[part] @ Phi, 0.5 * h[part] @ d

        for part in self._parts():
            more = checkpoint(of, part, use_reentrant=False) if torch.is_grad_enabled() else of(part)
            assert more is not None
            gram, linear, trace = gram + more[0], linear + more[1], trace + more[2]
        return gram, linear, trace


def _root(gram: Tensor) -> Tensor:
    return cholesky(gram + torch.eye(len(gram), dtype=gram.dtype))


def _log_z(L: Tensor, linear: Tensor, trace: Tensor) -> Tensor:
    half = torch.linalg.solve_triangular(L, linear[:, None], upper=False)
    return -L.diagonal().log().sum() + 0.5 * half.square().sum() - trace
