"""The one primitive of inference: a Gaussian prior times quadratic sites, and its normaliser logZ.

Rasmussen, Williams: "Gaussian Processes for Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001,
algorithms 2.1 and 3.1.

    logZ(K, r, h) = log ∫ N(f | 0, K) exp(rᵀf − ½ fᵀ H f) df,      H = diag(h),  h ≥ 0

Everything goes through B = I + S K S with S = diag(√h), whose eigenvalues are all at least one. So K may be
singular (more outputs than latents, repeated inputs), K⁻¹ never appears, and B needs no jitter.

| on paper | in code  | what it is                                   |
|----------|----------|----------------------------------------------|
| K        | `K`      | prior covariance of the rows, (..., N, N)    |
| H, Hv    | `h`, `r` | site precisions and linear terms, (..., N)   |
| m, Σ     | `m`, `v` | posterior mean; `v` is the diagonal of Σ     |
|          | `alpha`  | (I + H K)⁻¹ r, so that m = K α               |

All functions take any number of leading batch dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.errors import NumericalError

if TYPE_CHECKING:
    from jaxtyping import Float


class NotPositiveDefinite(NumericalError):
    """A factorisation that failed; `row` is the first row at which it did, and `batch` the problem."""

    def __init__(self, what: str, *, row: int = 0, batch: int = 0, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.row, self.batch = row, batch

    def named(self, where: str, broken: str | None) -> NotPositiveDefinite:
        """The same with its place; if a parameter is not finite, that is what went wrong."""
        what, remedy = self.what, self.remedy
        if broken is not None:
            what, remedy = f"parameter {broken!r} is not finite", "start again from a healthy prior"
        return NotPositiveDefinite(what, row=self.row, batch=self.batch, where=where, remedy=remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"row": self.row, "batch": self.batch})


def cholesky(A: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """The only Cholesky factorisation of the project: L with A = L Lᵀ, or an error that knows its row."""
    L, info = torch.linalg.cholesky_ex(A)
    # LAPACK lets NaN through with info = 0, so the diagonal is looked at too.
    if bool(info.any()) or not isfinite(float(L.detach().diagonal(dim1=-2, dim2=-1).sum())):
        bad_row = (info > 0) | ~torch.isfinite(L.diagonal(dim1=-2, dim2=-1)).all(-1)
        batch = int(bad_row.reshape(-1).nonzero()[0, 0])
        diagonal = L.diagonal(dim1=-2, dim2=-1).reshape(-1, L.shape[-1])[batch]
        suspects = [int(info.reshape(-1)[batch]) - 1, *(~torch.isfinite(diagonal)).nonzero()[:1, 0].tolist()]
        row = min(suspect for suspect in suspects if suspect >= 0)
        raise not_positive_definite(row, batch)
    return L


def not_positive_definite(row: int, batch: int) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        f"the covariance is not positive definite at row {row}",
        row=row,
        batch=batch,
        remedy="raise the noise, or lower the amplitude or the mixing weights of this task",
    )


def jittered_cholesky(A: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """L with A + jitter = L Lᵀ, for the covariance of inducing variables: these alone have no noise to lean on.

    The jitter is relative to the largest variance, 1e-8 at first and ten times as much while that is not enough.
    """
    size = A.detach().diagonal(dim1=-2, dim2=-1).amax(-1) if A.shape[-1] else A.new_zeros(A.shape[:-2])
    size = torch.where(size == 0.0, 1.0, size)  # no variance at all: anything will do
    jitter = 1e-8
    while True:
        try:
            return cholesky(A + torch.diag_embed((jitter * size)[..., None].expand(A.shape[:-1])))
        except NotPositiveDefinite:
            if jitter > 1e-4:
                raise
            jitter *= 10.0


@dataclass(frozen=True)
class Gaussian:
    """q(f) ∝ N(f | 0, K) exp(rᵀf − ½ fᵀHf), held by the factor of B; `logz` is its normaliser."""

    r: Float[Tensor, "*batch N"]
    h: Float[Tensor, "*batch N"]
    L: Float[Tensor, "*batch N N"]  # B = L Lᵀ
    B_inv: Float[Tensor, "*batch N N"]
    alpha: Float[Tensor, "*batch N"]
    m: Float[Tensor, "*batch N"]
    v: Float[Tensor, "*batch N"]
    logz: Float[Tensor, "*batch"]

    @property
    def second_moment(self) -> Float[Tensor, "*batch N"]:
        """E[f²] = m² + v, for each row."""
        return self.m.square() + self.v

    @property
    def minus_kl(self) -> Float[Tensor, "*batch"]:
        """−KL(q‖p) = logZ − E_q[rᵀf − ½fᵀHf], with α = r − h m put in: large terms that would cancel are gone."""
        log_det = self.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return 0.5 * (self.h * self.v - self.alpha * self.m).sum(-1) - log_det


def solve(K: Float[Tensor, "*batch N N"], r: Float[Tensor, "*batch N"], h: Float[Tensor, "*batch N"]) -> Gaussian:
    """The posterior of f given its sites, from one factorisation; no gradient is recorded.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> q = solve(one[:, None], r=one, h=one)  # prior N(0, 1), one observation y = 1 with unit noise
    >>> q.m.item(), q.v.item()
    (0.5, 0.5)
    """
    with torch.no_grad():
        s = h.sqrt()
        B = (s[..., :, None] * K).mul_(s[..., None, :])
        B.diagonal(dim1=-2, dim2=-1).add_(1.0)
        L = cholesky(B)

        # α = (I + HK)⁻¹ r. With r = S u on the rows that have h > 0 this is S B⁻¹ u: the textbook form
        # r − S B⁻¹ S K r subtracts two numbers of size K h and loses as many digits. r0 is what h = 0 leaves.
        seen = h > 0
        u = torch.where(seen, r / torch.where(seen, s, 1.0), 0.0)
        r0 = torch.where(seen, 0.0, r)
        if bool((r0 != 0).any()):
            u = u - s * _mv(K, r0)
        alpha = r0 + s * torch.cholesky_solve(u[..., None], L)[..., 0]
        m = _mv(K, alpha)  # equ:mf_local_q2, eq. 3b, the mean: m = Σ H v = K α
        return gaussian_from_factor(K, r, h, L, alpha, m)


def gaussian_from_factor(
    K: Float[Tensor, "*batch N N"],
    r: Float[Tensor, "*batch N"],
    h: Float[Tensor, "*batch N"],
    L: Float[Tensor, "*batch N N"],
    alpha: Float[Tensor, "*batch N"],
    m: Float[Tensor, "*batch N"],
) -> Gaussian:
    """The posterior whose factor, mean and α are known already; only the variances are left to compute."""
    B_inv = torch.cholesky_inverse(L)
    v = _marginal_variance(K, h.sqrt(), L, B_inv, h)
    logz = -L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 0.5 * (r * m).sum(-1)
    return Gaussian(r, h, L, B_inv, alpha, m, v, logz)


def _marginal_variance(K: Tensor, s: Tensor, L: Tensor, B_inv: Tensor, h: Tensor) -> Tensor:
    """diag Σ by the one of two equal formulas that does not cancel.

    equ:mf_local_q2, eq. 3b, the covariance: Σ = (H + K⁻¹)⁻¹ = K − K S B⁻¹ S K, and S Σ S = I − B⁻¹.
    """
    prior = K.diagonal(dim1=-2, dim2=-1)
    informed = h * prior > 1e-4  # below this 1 − (B⁻¹)_jj loses more than four digits
    v = (1.0 - B_inv.diagonal(dim1=-2, dim2=-1)) / torch.where(informed, h, 1.0)
    if not bool((informed | (prior == 0.0)).all()):  # the rows that pad a batch have no variance to lose
        explained = torch.linalg.solve_triangular(L, s[..., :, None] * K, upper=False).square().sum(-2)
        v = torch.where(informed, v, prior - explained)
    return v.clamp_min(0.0)


def _mv(A: Tensor, x: Tensor) -> Tensor:
    return (A @ x[..., None])[..., 0]


class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(ctx, K: Tensor, r: Tensor, h: Tensor, q: Gaussian) -> Tensor:
        ctx.q = q
        return q.logz.clone()

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        (grad,) = grad_outputs
        q: Gaussian = ctx.q
        s = q.h.sqrt()
        grad_K = grad_r = grad_h = None
        if ctx.needs_input_grad[0]:
            # ∂logZ/∂K = ½ (ααᵀ − S B⁻¹ S)
            weight = 0.5 * grad[..., None, None]
            grad_K = (q.B_inv * (-weight * s[..., :, None])).mul_(s[..., None, :])
            grad_K.addcmul_(weight * q.alpha[..., :, None], q.alpha[..., None, :])
        if ctx.needs_input_grad[1]:
            grad_r = grad[..., None] * q.m  # ∂logZ/∂r = m
        if ctx.needs_input_grad[2]:
            grad_h = -0.5 * grad[..., None] * q.second_moment  # ∂logZ/∂h = −½ (m² + diag Σ)
        return grad_K, grad_r, grad_h, None


def log_z(
    K: Float[Tensor, "*batch N N"],
    r: Float[Tensor, "*batch N"],
    h: Float[Tensor, "*batch N"],
    q: Gaussian | None = None,
) -> Float[Tensor, "*batch"]:
    """logZ as a differentiable function of K, r and h, with its derivative in closed form.

    Pass `q`, the result of `solve` at the same values, to spend no second factorisation.
    """
    if q is None:
        q = solve(K, r, h)
    return _LogZ.apply(K, r, h, q)  # pyright: ignore[reportReturnType]
