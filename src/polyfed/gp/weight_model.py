"""A client's rows under functions that are linear in given features: those that all share, of which others know something, and
its own, of which nobody does.

    f_j = (A_j ⊗ φ_j)ᵀ u + (A_j ⊗ φ_j)ᵀ u_c,     u ~ what the others know (Weights),   u_c ~ N(0, B of the personal part)

An ordinary problem of dense rows with a mean and a covariance of their own (gp/dense.py). What its labels then say of u is

    Λ = Ψᵀ (H⁻¹ + K_c)⁻¹ Ψ,     η = Ψᵀα + Λ E[u]

with K_c the covariance of the personal part alone and Ψ the rows A_j ⊗ φ_j, as of any shared function (gp/knowledge.py).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polyfed.gp.dense import DenseModel
from polyfed.gp.knowledge import Evidence
from polyfed.gp.linalg import Gaussian, cholesky
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.weight_space import Coregionalisation, Weights


class WeightModel(DenseModel):
    """Rows of one client.

    Args:
        prior: for the noise of the tasks; its outputs say which are whose.
        rows: the labels.
        phi: (inputs, features) at the inputs of the rows.
        shared: what the others know of the shared weights.
        personal: of the first of the same features.
        features: inputs → features, for predictions.
        unseen: inputs → the squared norm of what they have beside the features of the first group. The weights of that have the
            same prior, and no row says anything of them: without it, inputs unlike all rows would look like an ordinary one.
    """

    def __init__(
        self,
        prior: Prior,
        rows: Rows,
        phi: Tensor,
        shared: Weights,
        personal: Coregionalisation,
        features: Callable[[Tensor], Tensor],
        unseen: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.shared, self.personal, self.features, self.unseen = shared, personal, features, unseen
        self.phi, self.A = phi[rows.at], rows.A
        self.white = shared.white(self.phi, rows.A)
        self.half = shared.half(self.white)
        self.own = self._own(self.phi, rows.A)
        super().__init__(prior, rows.shifted(self.white @ shared.mean), self.half.mT @ self.half + self.own)

    def _own(self, phi: Tensor, A: Tensor) -> Tensor:
        """Covariance of rows with those of the client, of the personal part."""
        mine = slice(self.personal.n_features)
        return self.personal.covariance(phi[:, mine], A, self.phi[:, mine], self.A)

    def evidence(self, q: Gaussian) -> Evidence:
        """What the labels say of the shared weights."""
        s = q.h.sqrt()
        B = (self.own * s[:, None]) * s
        B.diagonal().add_(1.0)
        Psi = (self.A[:, :, None] * self.phi[:, None, :]).flatten(1)
        V = torch.linalg.solve_triangular(cholesky(B), s[:, None] * Psi, upper=False)
        precision = V.mT @ V
        known = self.shared.given(self.phi, self.A, q.alpha)
        return Evidence.of(precision, Psi.mT @ q.alpha + precision @ known)

    def moments(self, q: Gaussian) -> Tensor:
        """Σ_j E[v_j v_jᵀ] of the personal part, (groups, T, T)."""
        s = q.h.sqrt()
        M = (q.B_inv * s[:, None]) * s
        return self.personal.moments(self.phi[:, : self.personal.n_features], self.A, q.alpha, M)

    def predict(self, q: Gaussian, x: Tensor) -> LatentPrediction:
        """All outputs at new inputs; mixing weights are those of outputs that are latents themselves."""
        phi, T = self.features(x), self.A.shape[-1]
        every = torch.eye(T, dtype=x.dtype).repeat(len(x), 1)  # all outputs of the first input, then of the second, ...
        phi = phi.repeat_interleave(T, 0)
        white = self.shared.white(phi, every)
        half = self.shared.half(white)
        k = half.mT @ self.half + self._own(phi, every)
        mean = (white @ self.shared.mean + k @ q.alpha).reshape(-1, T)
        explained = torch.linalg.solve_triangular(q.L, q.h.sqrt()[:, None] * k.mT, upper=False).reshape(-1, len(x), T)
        half = half.reshape(-1, len(x), T)
        cov = torch.einsum("pxs,pxt->xst", half, half) - torch.einsum("nxs,nxt->xst", explained, explained)
        for group, B in zip(self.personal.groups, self.personal.B, strict=True):
            cov = cov + phi[::T, group].square().sum(-1)[:, None, None] * B
        if self.unseen is not None:
            of_both = self.shared.prior.B[0] + (self.personal.B[0] if self.personal.sizes[0] else 0.0)
            cov = cov + self.unseen(x)[:, None, None] * of_both
        return LatentPrediction(mean, cov, self.prior.selecting())
