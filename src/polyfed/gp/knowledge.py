"""A prior that knows something: functions that all clients share, as far as others have learned them.

Latents come in two kinds. A shared one, s_b, is one function for all clients; a personal one is drawn by each client for
itself. Between clients a shared latent is seen through M whitened features φ_b(x) = L_b⁻¹ k_b(Z, x) (gp/whitened.py), so that
for the rows of a client

    f = Φ u + e,    u ~ N(0, I) the same for all,    e ~ N(0, C) its own,    C = K − Φ Φᵀ ⪰ 0,    Φ_j = (a_jb φ_b(x_j))_b

with K the covariance of the rows over all latents. Within a client nothing is approximated. What its labels say of u is a
factor exp(ηᵀu − ½ uᵀΛu), `Evidence`; factors of different clients multiply, so their parameters add up. What the others know,
N(u | Ω₋⁻¹η₋, Ω₋⁻¹) with Ω₋ = I + Σ Λ, is `Knowledge`, and under it a client has an ordinary prior again (`Informed`):

    mean Φ μ₋,    covariance K − Φ (I − Ω₋⁻¹) Φᵀ = C + Φ Ω₋⁻¹ Φᵀ

The gradient of the client's bound in Θ with Ω₋, η₋ held fixed is E_q(u)[∂ log Z_c(u)/∂Θ] (Fisher's identity), so what the
clients send adds up to the gradient of the joint bound; nothing of it needs matrices larger than Φ. The model extends that of
the paper (pFed-Mul, KDD 2025), which is the case without shared latents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp import compiled
from polyfed.gp.linalg import NotPositiveDefinite, cholesky
from polyfed.gp.lmc import Gather
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.whitened import features_of_rows, n_features, whitened

if TYPE_CHECKING:
    from jaxtyping import Float

FEW = 8  # matrices, for which compiled code need not be loaded


@dataclass(frozen=True)
class Evidence:
    """Factors exp(ηᵀu − ½ uᵀΛu), of one client or of many: Λ as one `triangle`, and η as `shift`."""

    triangle: Float[Tensor, "*batch packed"]  # P (P + 1) / 2 of them
    shift: Float[Tensor, "*batch P"]

    @classmethod
    def none(cls, width: int) -> Evidence:
        """Of someone who has said nothing yet."""
        return cls(torch.zeros(width * (width + 1) // 2, dtype=torch.float64), torch.zeros(width, dtype=torch.float64))

    @classmethod
    def of(cls, precision: Float[Tensor, "*batch P P"], shift: Float[Tensor, "*batch P"]) -> Evidence:
        """From Λ, (..., P, P), and η."""
        return cls(triangle(precision), shift)

    @property
    def precision(self) -> Float[Tensor, "*batch P P"]:
        """Λ, (..., P, P)."""
        return symmetric(self.triangle, self.shift.shape[-1])

    @property
    def arrays(self) -> dict[str, Tensor]:
        """By their names, as they are kept and sent."""
        return {"triangle": self.triangle, "shift": self.shift}

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(self.triangle + other.triangle, self.shift + other.shift)

    def __sub__(self, other: Evidence) -> Evidence:
        return Evidence(self.triangle - other.triangle, self.shift - other.shift)

    def __mul__(self, share: float) -> Evidence:
        return Evidence(share * self.triangle, share * self.shift)

    def __getitem__(self, clients: int | Tensor) -> Evidence:
        return Evidence(self.triangle[clients], self.shift[clients])

    def is_positive(self, rounding: float) -> Tensor:
        """Whether Λ is positive semi-definite, but for so much of one and of its largest entry; (...)"""
        width = self.shift.shape[-1]
        solver = compiled.solver() if self.shift.dim() > 1 and len(self.shift) > FEW else None
        if solver is not None:
            return solver.are_positive(self.triangle, rounding)
        whole = lower(self.triangle, width)
        slack = rounding * (1.0 + self.triangle.abs().amax(-1))
        whole.diagonal(dim1=-2, dim2=-1).add_(slack[..., None])
        L, failed = torch.linalg.cholesky_ex(whole)
        return (failed == 0) & L.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)

    @classmethod
    def stack(cls, clients: Sequence[Evidence]) -> Evidence:
        """That of many clients, in a leading dimension."""
        return cls(torch.stack([e.triangle for e in clients]), torch.stack([e.shift for e in clients]))


@dataclass(frozen=True)
class Knowledge:
    """N(u | Ω⁻¹η, Ω⁻¹), what is known of the first `n_shared` latents before a client's labels; of one client or of a batch.

    Attributes:
        Z: (M, D) the inputs of the features, as kernels see them.
        n_shared: latents of the prior that are shared; they come first.
        evidence: Ω − I and η, of all others.
    """

    Z: Tensor
    n_shared: int
    evidence: Evidence

    @cached_property
    def L(self) -> Tensor:
        """The factor of Ω, (..., P, P)."""
        precision = lower(self.evidence.triangle, self.evidence.shift.shape[-1])
        precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
        try:
            return cholesky(precision)  # which looks at the lower triangle alone
        except NotPositiveDefinite as error:
            raise not_a_precision(error.row, error.batch) from None

    @cached_property
    def mean(self) -> Tensor:
        """Ω⁻¹η, (..., P)."""
        return torch.cholesky_solve(self.evidence.shift[..., None], self.L)[..., 0]

    def __getitem__(self, client: int) -> Knowledge:
        """Of one client of a batch."""
        return Knowledge(self.Z, self.n_shared, self.evidence[client])

    @classmethod
    def stack(cls, clients: Sequence[Knowledge]) -> Knowledge:
        """That of many clients, in a leading dimension; what was found of each is not found again."""
        whole = cls(clients[0].Z, clients[0].n_shared, Evidence.stack([one.evidence for one in clients]))
        if all("L" in vars(one) for one in clients):
            vars(whole)["L"] = torch.stack([one.L for one in clients])
        return whole

    def checked(self) -> Knowledge:
        """The same, if it is a distribution; else an error."""
        _ = self.L
        return self

    def features(self, prior: Prior, z: Tensor) -> list[Tensor]:
        """φ_b at each z, (..., U, M_b), of the shared latents, of amplitude one."""
        return [whitened(prior, b, self.Z, z) for b in range(self.n_shared)]

    def spread(self, Phi: Tensor) -> Tensor:
        """Ω⁻¹Φᵀ."""
        return torch.cholesky_solve(Phi.mT, self.L)


def not_a_precision(row: int, batch: int) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        "what is known of the shared functions has no positive definite precision",
        row=row,
        batch=batch,
        remedy="go on from a state of the server and of the client that belong together",
    )


KnowledgeOf = Callable[[Tensor], Knowledge]  # clients of a batch, by their numbers → theirs, stacked


class Informed:
    """The prior of rows under what is known: Φ with its graph, their mean, and what is known of their covariance."""

    def __init__(
        self, knowledge: Knowledge, prior: Prior, rows: Rows, z: Tensor, a: Tensor, gather: Gather, K: Tensor
    ) -> None:
        self.knowledge, self.prior = knowledge, prior
        of_rows = z if gather.same else torch.take_along_dim(z, rows.at[..., None], -2)
        Phi = features_of_rows(prior, knowledge.n_shared, knowledge.Z, of_rows, a)
        self.Phi, self.K = Phi.detach(), K.detach()
        self.known = self.Phi - knowledge.spread(self.Phi).mT  # Φ (I − Ω⁻¹)
        self.covariance: Tensor
        self.covariance, self.mean = _Known.apply(K, Phi, self.known, knowledge.mean)  # pyright: ignore[reportGeneralTypeIssues]

    def evidence(self, h: Float[Tensor, "*batch N"], alpha: Float[Tensor, "*batch N"]) -> Evidence:
        """What the labels say of u, given sites of precision h and α of the posterior that they led to.

        Λ = VᵀV with V = L⁻¹SΦ, L Lᵀ = I + S C S. From η = Φᵀ(H⁻¹ + C)⁻¹H⁻¹r and the posterior mean of u, μ = μ₋ + Ω₋⁻¹Φᵀα,
        follows η = Φᵀα + Λμ, so that nothing has to be solved for r again.
        """
        with torch.no_grad():
            s = h.sqrt()
            V = s[..., :, None] * self.Phi
            B = (self.K * s[..., :, None]).mul_(s[..., None, :])
            B = torch.baddbmm(B, V, V.mT, alpha=-1.0) if B.dim() == 3 else B - V @ V.mT
            B.diagonal(dim1=-2, dim2=-1).add_(1.0)
            Vt = torch.linalg.solve_triangular(cholesky(B).mT, V.mT, upper=True, left=False)
            precision = Vt @ Vt.mT
            said = self.Phi.mT @ alpha[..., None]
            mean = self.knowledge.mean[..., None] + torch.cholesky_solve(said, self.knowledge.L)
            return Evidence(triangle(precision), (said + precision @ mean)[..., 0])

    def at(self, z: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """For new inputs: the mean of the shared latents, (..., X, shared); what is known of their covariance, and of that with
        the rows, (..., N, X) for each."""
        knowledge, prior = self.knowledge, self.prior
        phi = [prior.amplitude(b).sqrt()[..., None, None] * part for b, part in enumerate(knowledge.features(prior, z))]
        widths = [part.shape[-1] for part in phi]
        means = knowledge.mean.split(widths, -1)
        mean = torch.stack([(part @ mu[..., None])[..., 0] for part, mu in zip(phi, means, strict=True)], -1)
        less = torch.eye(sum(widths), dtype=z.dtype) - torch.cholesky_inverse(knowledge.L)  # I − Ω⁻¹
        known = z.new_zeros(*mean.shape, len(phi))
        for b, columns in enumerate(less.split(widths, -2)):
            spread = (phi[b] @ columns).split(widths, -1)
            for c, part in enumerate(phi):
                known[..., b, c] = (spread[c] * part).sum(-1)
        return mean, known, [mine @ part.mT for mine, part in zip(self.known.split(widths, -1), phi, strict=True)]


class _Known(torch.autograd.Function):
    """K − Y Φᵀ for Y = ΦD, and Φμ, with D and μ constant and D symmetric; the gradient in the first is taken to be symmetric,
    as that of logZ is."""

    @staticmethod
    def forward(ctx, K: Tensor, Phi: Tensor, known: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(known, mean)
        return K - known @ Phi.mT, (Phi @ mean[..., None])[..., 0]

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        G, g = grad_outputs
        known, mean = ctx.saved_tensors
        return G, (G @ known).mul_(-2.0).addcmul_(g[..., :, None], mean[..., None, :]), None, None


def width_of(prior: Prior, n_shared: int, n_points: int) -> int:
    """P, the number of features of all shared latents, with `n_points` points in Z."""
    return sum(n_features(prior, b, n_points) for b in range(n_shared))


@lru_cache(maxsize=16)
def _places(width: int) -> tuple[Tensor, Tensor]:
    i, j = torch.tril_indices(width, width)
    return i * width + j, j * width + i


def triangle(A: Float[Tensor, "*batch P P"]) -> Float[Tensor, "*batch packed"]:
    """The lower triangle of a symmetric matrix, row by row.

    >>> triangle(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    return A.flatten(-2).index_select(-1, _places(A.shape[-1])[0])


def lower(packed: Float[Tensor, "*batch packed"], width: int) -> Float[Tensor, "*batch {width} {width}"]:
    """The matrix of a triangle, with zeros above its diagonal."""
    whole = packed.new_zeros(*packed.shape[:-1], width * width)
    return whole.index_copy_(-1, _places(width)[0], packed).unflatten(-1, (width, width))


def symmetric(packed: Float[Tensor, "*batch packed"], width: int) -> Float[Tensor, "*batch {width} {width}"]:
    """The matrix of a triangle."""
    half = lower(packed, width)
    return half + half.tril(-1).mT
