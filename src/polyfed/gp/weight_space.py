"""Functions that are linear in given features, s(x) = V'φ(x), and what is known of V.

Column j of V (one number for each of T outputs) is drawn from N(0, B_g), where g is the group of feature j: how outputs go
together is one T × T matrix for a group. u holds V output by output, and a row that sees the outputs through A_j sees u through
A_j ⊗ φ_j. Evidence exp(ηᵀu − ½ uᵀΛu) is in terms of u itself and not of B, so it keeps its meaning when B moves.

All goes through whitened weights, u = C w with w ~ N(0, I): I + C'ΛC has no eigenvalue below one, and B may be singular.

B has a closed form by EM: the mean over its group of E[v_j v_jᵀ] under what is known of V. It needs the sums of the evidence
alone, so a server takes as many such steps as it likes without asking anybody.

A client's rows see V through functions that all share, which others know in part, and functions of its own, which nobody knows:

    f_j = (A_j ⊗ φ_j)ᵀ u + (A_j ⊗ φ_j)ᵀ u_c,     u ~ what the others know (Weights),   u_c ~ N(0, B of the personal part)

An ordinary problem of dense rows with a mean and a covariance of their own (gp/dense.py). What its labels then say of u is

    Λ = Ψᵀ (H⁻¹ + K_c)⁻¹ Ψ,     η = Ψᵀα + Λ E[u]

with K_c the covariance of the personal part alone and Ψ the rows A_j ⊗ φ_j, as of any shared function (gp/knowledge.py).

What is linear in its inputs cannot level off; a function of what it says can (`curved`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.gp.blocks import spans
from polyfed.gp.kernels import rbf
from polyfed.gp.knowledge import Evidence
from polyfed.gp.linalg import cholesky

LEAST = 1e-8  # variance of a weight in every direction of outputs: B of a group that nothing asks for stays invertible
N_POINTS, REACH, LENGTH = 9, 2.5, 1.2  # of curved features
JITTER = 1e-4  # of the kernel's variance: neighbours are much alike, and their differences are not to be amplified


@dataclass(frozen=True)
class Coregionalisation:
    """How the outputs go together in each group of features.

    Attributes:
        sizes: how many features each group has; groups lie one after the other.
        B: (groups, T, T).
    """

    sizes: tuple[int, ...]
    B: Tensor

    @property
    def n_features(self) -> int:
        return sum(self.sizes)

    @property
    def n_outputs(self) -> int:
        return self.B.shape[-1]

    @property
    def groups(self) -> list[slice]:
        """The features of each."""
        return spans(self.sizes)

    def per_feature(self, of_groups: Tensor) -> Tensor:
        """(groups, ...) → (features, ...)."""
        return of_groups.repeat_interleave(torch.tensor(self.sizes), 0)

    def covariance(self, phi: Tensor, A: Tensor, phi2: Tensor, A2: Tensor) -> Tensor:
        """The prior covariance of rows that see V through A ⊗ φ."""
        K = phi.new_zeros(len(phi), len(phi2))
        for group, B in zip(self.groups, self.B, strict=True):
            K += (A @ B @ A2.mT) * (phi[:, group] @ phi2[:, group].mT)
        return K

    def moments(self, phi: Tensor, A: Tensor, alpha: Tensor, M: Tensor) -> Tensor:
        """Σ_j E[v_j v_jᵀ] of each group, (groups, T, T), given rows whose posterior has this α and (H⁻¹ + K)⁻¹ = M."""
        found = []
        for group, size, B in zip(self.groups, self.sizes, self.B, strict=True):
            inner = (torch.outer(alpha, alpha) - M) * (phi[:, group] @ phi[:, group].mT)
            found.append(size * B + B @ (A.mT @ inner @ A) @ B)
        return torch.stack(found)


class Weights:
    """N(u | Ω⁻¹η, Ω⁻¹): the prior of V times evidence of it."""

    def __init__(self, prior: Coregionalisation, evidence: Evidence) -> None:
        self.prior = prior
        self.C = cholesky(prior.B)  # (groups, T, T); of a feature, the root of its group's
        self._C = prior.per_feature(self.C)
        T, m = prior.n_outputs, prior.n_features
        Lambda = evidence.precision.reshape(T, m, T, m)
        white = torch.einsum("jts,tjuk,kuv->sjvk", self._C, Lambda, self._C).reshape(T * m, T * m)
        white = 0.5 * (white + white.mT)
        white.diagonal().add_(1.0)
        self.L = cholesky(white)
        shift = torch.einsum("jts,tj->sj", self._C, evidence.shift.reshape(T, m)).reshape(-1)
        self.mean = torch.cholesky_solve(shift[:, None], self.L)[:, 0]  # of w

    def white(self, phi: Tensor, A: Tensor) -> Tensor:
        """What rows see of w, (N, P)."""
        parts = [phi[:, None, group] * (A @ C)[:, :, None] for group, C in zip(self.prior.groups, self.C, strict=True)]
        return torch.cat(parts, -1).flatten(1)

    def half(self, white: Tensor) -> Tensor:
        """(P, N), of which the products are the covariance of such rows."""
        return torch.linalg.solve_triangular(self.L, white.mT, upper=False)

    def given(self, phi: Tensor, A: Tensor, alpha: Tensor) -> Tensor:
        """E[u] once rows have been seen, whose posterior has this α."""
        said = self.white(phi, A).mT @ alpha
        return self._unwhitened(self.mean + torch.cholesky_solve(said[:, None], self.L)[:, 0])

    @property
    def V(self) -> Tensor:
        """E[V], (T, features)."""
        return self._unwhitened(self.mean).reshape(self.prior.n_outputs, -1)

    def moments(self) -> Tensor:
        """Σ_j E[v_j v_jᵀ] of each group, (groups, T, T)."""
        T, m = self.prior.n_outputs, self.prior.n_features
        covariance = torch.cholesky_inverse(self.L).reshape(T, m, T, m).diagonal(dim1=1, dim2=3)  # (T, T, m)
        mean = self.mean.reshape(T, m)
        second = (covariance + mean[:, None, :] * mean[None, :, :]).movedim(-1, 0)
        each = self._C @ second @ self._C.mT
        return torch.stack([each[group].sum(0) for group in self.prior.groups])

    def _unwhitened(self, w: Tensor) -> Tensor:
        return torch.einsum("jts,sj->tj", self._C, w.reshape(self.prior.n_outputs, -1)).reshape(-1)


def renewed(prior: Coregionalisation, moments: Tensor, clients: float = 1.0) -> Coregionalisation:
    """B of each group from the sums of moments over a number of clients; a group without features keeps its own."""
    sizes = torch.tensor(prior.sizes, dtype=torch.float64)[:, None, None] * clients
    B = moments / sizes.clamp_min(1.0)
    B = 0.5 * (B + B.mT) + LEAST * torch.eye(B.shape[-1], dtype=B.dtype)
    return Coregionalisation(prior.sizes, torch.where(sizes > 0, B, prior.B))


def learned(prior: Coregionalisation, evidence: Evidence, steps: int, tolerance: float = 0.0) -> Coregionalisation:
    """B after a number of steps of EM, or fewer where a step moves it by less than this share of its largest entry."""
    for _ in range(steps):
        before, prior = prior, renewed(prior, Weights(prior, evidence).moments())
        if bool(((prior.B - before.B).abs().amax((-2, -1)) < tolerance * prior.B.abs().amax((-2, -1))).all()):
            break
    return prior


def wider(evidence: Evidence, n_outputs: int, n_features: int) -> Evidence:
    """The same evidence where further features come after those that it speaks of."""
    before = evidence.shift.shape[-1] // n_outputs
    if before == n_features:
        return evidence
    precision = evidence.shift.new_zeros(n_outputs, n_features, n_outputs, n_features)
    precision[:, :before, :, :before] = evidence.precision.reshape(n_outputs, before, n_outputs, before)
    shift = evidence.shift.new_zeros(n_outputs, n_features)
    shift[:, :before] = evidence.shift.reshape(n_outputs, before)
    return Evidence.of(precision.reshape(n_outputs * n_features, -1), shift.reshape(-1))


def curved(z: Tensor) -> Tensor:
    """Features of outputs, (N, T) → (N, T · 9), those of the first output first; of squared norm one at the most for each.

    Each output z, in standard deviations around its mean, gets the whitened features of an RBF kernel on points that cover
    where such numbers lie. The sum over outputs of functions of one output each: as many features as outputs times points.
    """
    points = torch.linspace(-REACH, REACH, N_POINTS, dtype=torch.float64)[:, None]
    phi = {"phi1": torch.tensor([LENGTH**-2.0], dtype=torch.float64)}
    L = cholesky(rbf(points, points, phi) + JITTER * torch.eye(N_POINTS, dtype=torch.float64))
    k = rbf(points, z.mT.reshape(-1, 1), phi)
    white = torch.linalg.solve_triangular(L, k, upper=False)
    return white.mT.reshape(z.shape[1], z.shape[0], N_POINTS).transpose(0, 1).flatten(1)
