"""The sparse posterior of a large client that receives shared functions: inducing inputs beside the points of the features.

Its inducing inputs are those that are chosen for it, and for a shared latent the points Z before them. Factored in that order,
the first of its whitened inducing variables *are* those of u that belong to the latent, and what is received says

    u ~ N(μ, Ω⁻¹),    rest ~ N(0, I),    f_j = Φ_j w + what is left unsaid, of variance d_j

which is the model of gp/latent_sparse.py with a precision and a mean before any label. With A = ΦᵀHΦ and b = Φᵀr over all rows,
what they say of u is what is left when the rest is integrated out:

    Λ = A_uu − A_ur (I + A_rr)⁻¹ A_ru,      η = b_u − A_ur (I + A_rr)⁻¹ b_r
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyfed.gp.knowledge import Evidence, Knowledge, triangle
from polyfed.gp.latent_sparse import LatentSparseGaussian, LatentSparseModel
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.whitened import n_features, root


class InformedSparseModel(LatentSparseModel):
    """As `SparseModel`, under what others know of shared latents."""

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor, knowledge: Knowledge) -> None:
        super().__init__(prior, rows, Z)
        self.knowledge = knowledge
        self.n_first = [n_features(prior, b, len(knowledge.Z)) for b in range(knowledge.n_shared)]
        for b in range(prior.n_latents):
            if not self._itself(b):
                points = self._points(b, self.z_Z)
                self.roots.append(root(prior.correlation(b, points, points)))
        if knowledge.n_shared:
            self.sent = (self.a * self._known_at_inputs()[self.of_row]).sum(1)
            self.rows = self.rows.shifted(self.sent)

    @property
    def widths(self) -> list[int]:
        first = [*self.n_first, *[0] * (self.prior.n_latents - len(self.n_first))]
        return [n if self._itself(b) else n + len(self.Z) for b, n in enumerate(first)]

    def precision(self) -> Tensor:
        P, u = super().precision(), self._u()
        P[u[:, None], u] = self.knowledge.L @ self.knowledge.L.mT
        return P

    def half_log_det(self) -> Tensor:
        return self.knowledge.L.diagonal().log().sum()

    def known_mean(self) -> list[Tensor]:
        shared = list(self.knowledge.mean.split(self.n_first)) if self.n_first else []
        return shared + super().known_mean()[len(shared) :]

    def evidence(self, q: LatentSparseGaussian) -> Evidence:
        """What the rows say of u."""
        with torch.no_grad():
            u = self._u()
            is_rest = torch.ones(self.size, dtype=torch.bool)
            is_rest[u] = False
            A, b = q.gram, q.linear + q.gram[:, u] @ self.knowledge.mean
            rest = torch.eye(int(is_rest.sum()), dtype=A.dtype) + A[is_rest][:, is_rest]
            A_ru = A[is_rest][:, u]
            gone = torch.linalg.solve(rest, torch.cat([A_ru, b[is_rest, None]], -1))
            precision = A[u[:, None], u] - A_ru.mT @ gone[:, :-1]
            return Evidence(triangle(0.5 * (precision + precision.mT)), b[u] - A_ru.mT @ gone[:, -1])

    def _u(self) -> Tensor:
        """The columns that are u."""
        pairs = zip(self.columns, self.n_first, strict=False)
        return torch.cat([torch.zeros(0, dtype=torch.int64), *(torch.arange(n) + own.start for own, n in pairs)])

    def _itself(self, b: int) -> bool:
        """Whether the inputs themselves are the features of this latent."""
        return b < self.knowledge.n_shared and self.prior.kernels[b].features is not None

    def _points(self, b: int, z_Z: Tensor) -> Tensor:
        return torch.cat([self.knowledge.Z, z_Z]) if b < self.knowledge.n_shared else z_Z

    def _project(self, b: int, z: Tensor, roots: Sequence[Tensor], z_Z: Tensor) -> tuple[Tensor, Tensor]:
        prior, features = self.prior, self.prior.kernels[b].features
        mine, scale = prior.of_latent(b, z), prior.amplitude(b).sqrt()
        if self._itself(b):
            assert features is not None
            return scale * features(mine), z.new_zeros(len(z))
        L = roots[sum(not self._itself(c) for c in range(b))]
        k = prior.correlation(b, self._points(b, z_Z), mine)
        A = torch.linalg.solve_triangular(L, k, upper=False).mT * scale
        return A, (prior.latent_variance(b, z) - A.square().sum(1)).clamp_min(0.0)
