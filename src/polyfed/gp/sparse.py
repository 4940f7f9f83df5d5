"""The sparse posterior: M inducing inputs Z stand for all N rows, at a cost that grows with N and not with its cube.

Titsias: "Variational Learning of Inducing Variables in Sparse Gaussian Processes", AISTATS 2009.

Inducing variables are whitened, w ~ N(0, I), and a row is f_j = Φ_j w + what Z leaves unsaid, of variance d_j. Then

    Λ = I + Φᵀ H Φ,   m = Φ Λ⁻¹ Φᵀ r,   v = diag(Φ Λ⁻¹ Φᵀ) + d
    logZ = −½ log|Λ| + ½ ‖L_Λ⁻¹ Φᵀ r‖² − ½ hᵀ d

Two models differ in Φ and d alone. In `SparseModel` (gp/latent_sparse.py) the inducing variables are the latent functions, and
the bound is never above the exact one. In `PaperSparseModel` they are the outputs and d = 0, as the paper has it. ½ hᵀd is the
**certificate**; docs/sparse.md says what it bounds and what it estimates.

Rows are handled in chunks and Φ is never held beyond one of them, so memory does not grow with N · B M.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from polyfed.gp.linalg import NotPositiveDefinite, cholesky, jittered_cholesky
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

if TYPE_CHECKING:
    from jaxtyping import Float

CHUNK = 4096  # rows handled at once
Part = slice | Tensor  # some rows: a chunk, or their positions


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
    minus_kl: Tensor  # −KL(q(w)‖p(w))


class InducingModel(ABC):
    """Prior, rows and inducing inputs of one client; the same questions as `ExactModel` answers."""

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor) -> None:
        # A mean needs the features of all rows, with their graph; the kernels then take theirs from them, and the network has
        # run once. Without a mean they are made chunk by chunk.
        self._seen = prior.features_of(rows.x) if prior.has_mean else None
        self.prior, self.Z = prior, Z
        self.rows = rows if self._seen is None else rows.around(prior.mu(self._seen))
        self.z_Z = prior.eta(Z)
        self._kept: tuple[Tensor, Tensor] | None = None

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of inducing variables."""

    def precision(self) -> Tensor:
        """P, where w ~ N(0, P⁻¹) before any label."""
        return torch.eye(self.size, dtype=torch.float64)

    @abstractmethod
    def design_matrix(self, part: Part) -> tuple[Tensor, Tensor]:
        """Φ (n, size) and d (n,) of some rows, differentiable in Θ."""

    @abstractmethod
    def predict(self, q: SparseGaussian, x: Tensor) -> LatentPrediction:
        """The posterior at new inputs."""

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of f̃ before any label."""
        with torch.no_grad():
            v = self.Z.new_empty(len(self.rows), dtype=torch.float64)
            for part in self.chunks(len(self.rows)):
                Phi, d = self.constants(part)
                v[part] = Phi.square().sum(1) + d
        return torch.zeros_like(v), v

    def solve(self, h: Tensor, r: Tensor) -> SparseGaussian:
        with torch.no_grad():
            gram, linear, trace = self.statistics(h, r)
            L, beta = self.solved(self.precision() + gram, linear)
            m, v = self.marginals(L, beta)
            minus_kl = minus_kl_of(h, v, trace, beta.square().sum(), L)
            return SparseGaussian(r, h, L, beta, m, v, _log_z(L, linear, trace), trace, minus_kl)

    def solved(self, Lambda: Tensor, linear: Tensor) -> tuple[Tensor, Tensor]:
        """The factor of Λ = P + ΦᵀHΦ, and β."""
        try:
            L = cholesky(Lambda)
        except NotPositiveDefinite as error:
            raise error.named("the inducing variables of all tasks", self.prior.broken()) from None
        return L, torch.cholesky_solve(linear[:, None], L)[:, 0]

    def marginals(self, L: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        """(m, v) of all rows."""
        m, v = torch.empty(2, len(self.rows), dtype=torch.float64)
        for part in self.chunks(len(self.rows)):
            m[part], v[part] = marginals(*self.constants(part), L, beta)
        return m, v

    def step(self, h: Tensor, r: Tensor) -> SparseGaussian:
        """All of it: inference needs no less."""
        return self.solve(h, r)

    def complete(self, q: SparseGaussian) -> SparseGaussian:
        return q

    def bound(self, q: SparseGaussian) -> Tensor:
        """The ELBO of q, differentiable in Θ as that of `ExactModel` is."""
        value = q.minus_kl + self.rows.local_bound(self.prior, q.m, q.v)
        if torch.is_grad_enabled():
            gram, linear, trace = self.statistics(q.h, q.r)
            logz = _log_z(root_of(gram), linear, trace)
            value = value + (logz - logz.detach())  # zero, with the gradient of logZ
        return value

    @staticmethod
    def chunks(n: int) -> list[slice]:
        """n rows or inputs, some at a time."""
        return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]

    def constants(self, part: slice) -> tuple[Tensor, Tensor]:
        """Features without their graph; kept for all steps of inference if one chunk holds all rows."""
        with torch.no_grad():
            made = self._kept or self.design_matrix(part)
            self._kept = made if len(self.rows) <= CHUNK else None
            return made

    def inputs(self, part: Part) -> tuple[Tensor, Tensor]:
        """What the kernels see of some rows' inputs, each once, and which of them is each row's."""
        inputs, of_row = torch.unique(self.rows.at[part], return_inverse=True)  # rows of one datum share their input
        seen = self.prior.features_of(self.rows.x[inputs]) if self._seen is None else self._seen[inputs]
        return self.prior.project(seen), of_row

    def statistics(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ΦᵀHΦ, Φᵀr and ½ hᵀd over all rows. For gradients each chunk is computed anew instead of being kept."""
        gram, linear, trace = h.new_zeros(self.size, self.size), h.new_zeros(self.size), h.new_zeros(())

        def of(part: slice) -> tuple[Tensor, Tensor, Tensor]:
            Phi, d = self.design_matrix(part) if torch.is_grad_enabled() else self.constants(part)
            return Phi.mT @ (h[part, None] * Phi), r[part] @ Phi, 0.5 * h[part] @ d

        for part in self.chunks(len(self.rows)):
            more = checkpoint(of, part, use_reentrant=False) if torch.is_grad_enabled() else of(part)
            assert more is not None
            gram, linear, trace = gram + more[0], linear + more[1], trace + more[2]
        return gram, linear, trace


class PaperSparseModel(InducingModel):
    """Inducing variables are all T outputs at Z, and a row is their conditional mean (proof:mf_inducing, app. C).

    Output i is f_i(x) = k_i(x, Z) k_i(Z, Z)⁻¹ f_i(Z) with its own kernel k_i = Σ_b W_ib² k_b, and no variance beside that:
    neither in inference nor in predictions, which far from Z become sure of zero. What other outputs at Z say of output i
    between the points of Z is lost too, so this bound is of another model and says nothing of the exact one. It is here to
    reproduce the paper; use `SparseModel` for anything else.
    """

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor) -> None:
        super().__init__(prior, rows, Z)
        W, z = prior.W, self.z_Z
        T, M = len(W), len(Z)
        k = torch.stack([prior.latent_covariance(b, z, z) for b in range(prior.n_latents)])
        # With more outputs than latents this covariance is singular, whatever Z.
        self.root = jittered_cholesky(torch.einsum("ib,jb,bmn->imjn", W, W, k).reshape(T * M, T * M))
        self.own_roots = jittered_cholesky(torch.einsum("ib,bmn->imn", W.square(), k))

    @property
    def size(self) -> int:
        """T M."""
        return self.root.shape[0]

    def design_matrix(self, part: Part) -> tuple[Tensor, Tensor]:
        (z, of_row), A = self.inputs(part), self.rows.A[part]
        weights = torch.einsum("jt,tmj->jtm", A, self._interpolation(z)[:, :, of_row])
        Phi = weights.reshape(len(A), self.size) @ self.root
        return Phi, Phi.new_zeros(len(A))

    def predict(self, q: SparseGaussian, x: Tensor) -> LatentPrediction:
        """The outputs themselves in place of latent functions, so `mixing` is made of rows of the identity."""
        T, M, seen = len(self.own_roots), len(self.Z), self.prior.features_of(x)
        weights = self._interpolation(self.prior.project(seen))
        Phi = torch.einsum("tmx,tmu->txu", weights, self.root.reshape(T, M, self.size))
        V = torch.linalg.solve_triangular(q.L, Phi.mT, upper=False)  # (T, T M, X)
        cov = torch.einsum("tux,sux->xts", V, V)
        return LatentPrediction((Phi @ q.beta).mT, cov, self.prior.selecting(), self.prior.mu_by_task(seen))

    def _interpolation(self, z: Tensor) -> Tensor:
        """k_i(Z, Z)⁻¹ k_i(Z, z) of every output, (T, M, n)."""
        k = torch.stack([self.prior.latent_covariance(b, self.z_Z, z) for b in range(self.prior.n_latents)])
        return torch.cholesky_solve(torch.einsum("ib,bmn->imn", self.prior.W.square(), k), self.own_roots)


def marginals(
    Phi: Float[Tensor, "N M"], d: Float[Tensor, " N"], L: Float[Tensor, "M M"], beta: Float[Tensor, " M"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Mean and variance that q(w) = N(β, (L Lᵀ)⁻¹) gives to rows with these features."""
    return Phi @ beta, torch.linalg.solve_triangular(L, Phi.mT, upper=False).square().sum(0) + d


def root_of(gram: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """The factor of Λ = I + ΦᵀHΦ."""
    return cholesky(gram + torch.eye(len(gram), dtype=gram.dtype))


def minus_kl_of(h: Tensor, v: Tensor, trace: Tensor, quadratic: Tensor, L: Tensor) -> Tensor:
    """−KL(q(w)‖p(w)), in a form without large terms that cancel: tr Λ⁻¹ − B M = −hᵀ(v − d)."""
    return 0.5 * (h * v).sum() - trace - 0.5 * quadratic - L.diagonal().log().sum()


def _log_z(L: Tensor, linear: Tensor, trace: Tensor) -> Tensor:
    half = torch.linalg.solve_triangular(L, linear[:, None], upper=False)
    return -L.diagonal().log().sum() + 0.5 * half.square().sum() - trace
