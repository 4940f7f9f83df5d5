"""The sparse posterior of a large client that is told of shared functions: inducing inputs beside the points of the features.

Its inducing inputs are those that are chosen for it, and for a shared latent the points Z before them. Factored in that order,
the first of its whitened inducing variables *are* u: w = (u, rest), and what is told says

    u ~ N(μ, Ω⁻¹),    rest ~ N(0, I),    f_j = Φ_j w + what is left unsaid, of variance d_j

which is the model of gp/sparse.py again in w = (μ, 0) + T w̃ with T = diag(L⁻ᵀ, I), Ω = L Lᵀ. With A = ΦᵀHΦ and b = Φᵀr over all
rows, what they say of u is what is left when the rest is integrated out:

    Λ = A_uu − A_ur (I + A_rr)⁻¹ A_ru,      η = b_u − A_ur (I + A_rr)⁻¹ b_r
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from polyfed.gp.kernels import KERNELS
from polyfed.gp.knowledge import Evidence, Knowledge, triangle
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.sparse import InducingModel, Part, SparseGaussian
from polyfed.gp.whitened import root


class InformedSparseModel(InducingModel):
    """As `SparseModel`, under what others know of shared latents."""

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor, knowledge: Knowledge) -> None:
        super().__init__(prior, rows, Z)
        self.knowledge = knowledge
        self.a = rows.A @ prior.W
        self.points: list[Tensor | None] = []  # of each latent; None where the inputs themselves are the features
        self.roots: list[Tensor | None] = []
        for b in range(prior.n_latents):
            shared, kernel = b < knowledge.n_shared, KERNELS[prior.kernels[b]]
            itself = shared and kernel.features is not None
            points = torch.cat([knowledge.Z, self.z_Z]) if shared else self.z_Z
            self.points.append(None if itself else points)
            self.roots.append(None if itself else root(kernel(points, points, prior.phi1(b))))
        if knowledge.n_shared:
            self.rows = self.rows.shifted(self._mean())

    @property
    def width(self) -> int:
        """P, the number of variables that are u."""
        return self.knowledge.mean.shape[-1]

    @property
    def size(self) -> int:
        personal = self.prior.n_latents - self.knowledge.n_shared
        further = sum(points is not None for points in self.points[: self.knowledge.n_shared])
        return self.width + (further + personal) * len(self.Z)

    def features(self, part: Part) -> tuple[Tensor, Tensor]:
        Phi, d = self._features(part, self.prior.n_latents)
        return self._told(Phi), d

    def evidence(self, q: SparseGaussian) -> Evidence:
        """What the rows say of u."""
        with torch.no_grad():
            P, L = self.width, self.knowledge.L
            gram, linear, _ = self.statistics(q.h, q.r)
            A, b = gram.clone(), linear.clone()
            A[:P] = L @ A[:P]  # out of w̃, back to w
            A[:, :P] = A[:, :P] @ L.mT
            b[:P] = L @ b[:P]
            b = b + A[:, :P] @ self.knowledge.mean
            rest = torch.eye(len(A) - P, dtype=A.dtype) + A[P:, P:]
            gone = torch.linalg.solve(rest, torch.cat([A[P:, :P], b[P:, None]], -1))
            precision = A[:P, :P] - A[:P, P:] @ gone[:, :P]
            return Evidence(triangle(0.5 * (precision + precision.mT)), b[:P] - A[:P, P:] @ gone[:, P])

    def predict(self, q: SparseGaussian, x: Tensor) -> LatentPrediction:
        """q(g(x)) at new inputs, with the variance that the inducing inputs leave unexplained."""
        seen = self.prior.seen(x)
        z = self.prior.project(seen)
        mean, factors, residual = [], [], []
        for b in range(self.prior.n_latents):
            weights = torch.zeros(self.prior.n_latents, dtype=z.dtype)
            weights[b] = 1.0
            Phi, left = self._mixed(z, torch.arange(len(z)), weights.expand(len(z), -1), self.prior.n_latents)
            told = self._told(Phi)
            mean.append(Phi[:, : self.width] @ self.knowledge.mean + told @ q.beta)
            factors.append(torch.linalg.solve_triangular(q.L, told.mT, upper=False))
            residual.append(left)
        V = torch.stack(factors)
        cov = torch.diag_embed(torch.stack(residual, -1)) + torch.einsum("bnx,cnx->xbc", V, V)
        return LatentPrediction(torch.stack(mean, -1), cov, self.prior.mixing(), self.prior.mu_by_task(seen))

    def _features(self, part: Part, n_latents: int) -> tuple[Tensor, Tensor]:
        z, of_row = self.inputs(part)
        return self._mixed(z, of_row, self.a[part], n_latents)

    def _mixed(self, z: Tensor, of_row: Tensor, a: Tensor, n_latents: int) -> tuple[Tensor, Tensor]:
        """Φ in terms of w for rows with mixing vectors a, u first, and d; of the first latents alone, if so few are wanted."""
        first, rest, d = [], [], a.new_zeros(len(a))
        for b in range(n_latents):
            A, left = self._project(b, z)
            mine = a[:, b, None] * A[of_row]
            d = d + a[:, b].square() * left[of_row]
            n_first = 0 if b >= self.knowledge.n_shared else A.shape[1] - (0 if self.points[b] is None else len(self.Z))
            first.append(mine[:, :n_first])
            rest.append(mine[:, n_first:])
        return torch.cat([*first, *rest], 1), d

    def _project(self, b: int, z: Tensor) -> tuple[Tensor, Tensor]:
        """The features of latent b at z, (n, its variables), and the variance of g_b(z) that they leave, (n,)."""
        prior, kernel, points, L = self.prior, KERNELS[self.prior.kernels[b]], self.points[b], self.roots[b]
        mine, scale = prior.of_latent(b, z), prior.amplitude(b).sqrt()
        if points is None or L is None:
            assert kernel.features is not None
            return scale * kernel.features(mine), z.new_zeros(len(z))
        A = torch.linalg.solve_triangular(L, kernel(points, mine, prior.phi1(b)), upper=False).mT * scale
        return A, (prior.latent_variance(b, z) - A.square().sum(1)).clamp_min(0.0)

    def _told(self, Phi: Tensor) -> Tensor:
        """Φ in terms of w̃."""
        u = torch.linalg.solve_triangular(self.knowledge.L, Phi[:, : self.width].mT, upper=False)
        return torch.cat([u.mT, Phi[:, self.width :]], 1)

    def _mean(self) -> Tensor:
        """Φ_u μ of all rows, with its graph; features are made anew for it, chunk by chunk."""

        def of(part: slice) -> Tensor:
            Phi, _ = self._features(part, self.knowledge.n_shared)
            return Phi[:, : self.width] @ self.knowledge.mean

        if not torch.is_grad_enabled():
            return torch.cat([of(part) for part in self.parts()])
        return torch.cat([checkpoint(of, part, use_reentrant=False) for part in self.parts()])  # pyright: ignore[reportArgumentType, reportCallIssue]
