"""Distances and cosines of all pairs of inputs: t of a kernel for φ₁ = 1, and how much of Σ G t each input makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from jaxtyping import Float


def squared_distance(
    x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch N N2"]:
    """‖x − x'‖² for all pairs: by one matrix product, and by differences where that cancels.

    Without the second part, repeated inputs a thousand length-scales from the centre would not be the same input.
    """
    return _SquaredDistance.apply(x, None if x2 is x else x2)  # pyright: ignore[reportReturnType]


class _SquaredDistance(torch.autograd.Function):
    """x2 is None for the distances of x to itself, of which those on the diagonal are zero and need no second look."""

    @staticmethod
    def forward(ctx, x: Tensor, x2: Tensor | None) -> Tensor:
        centre = x.mean(-2, keepdim=True) if x.shape[-2] else x.new_zeros(1)
        a = x - centre
        b = a if x2 is None else x2 - centre
        ctx.save_for_backward(a, *(() if x2 is None else (b,)))
        norms = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
        d2 = torch.sub(norms, a @ b.mT, alpha=2.0)
        near = d2 <= 1e-4 * norms
        if x2 is None:
            d2.diagonal(dim1=-2, dim2=-1).zero_()
            near.diagonal(dim1=-2, dim2=-1).zero_()
        if not bool(near.any()):
            return d2
        close = torch.nonzero(near, as_tuple=True)
        if 4 * len(close[0]) > d2.numel():  # most pairs: all of them at once need less memory
            return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
        i, j = close[-2], close[-1]
        exact = (_take(a, close[:-2], i) - _take(b, close[:-2], j)).square().sum(-1)
        return d2.index_put_(close, exact)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        # ∂/∂x_i Σ_ij G_ij ‖x_i − x'_j‖² = 2 Σ_j G_ij (x_i − x'_j); the centre cancels
        (G,) = grad_outputs
        a, *other = ctx.saved_tensors
        if not other:
            G = G + G.mT
            return 2.0 * (G.sum(-1, keepdim=True) * a - G @ a), None
        (b,) = other
        return 2.0 * (G.sum(-1, keepdim=True) * a - G @ b), 2.0 * (G.sum(-2)[..., None] * b - G.mT @ a)


def _take(x: Tensor, batch: tuple[Tensor, ...], i: Tensor) -> Tensor:
    return x[(*batch, i)] if x.dim() > 2 else x[i]


def squared_by_input(
    G: Float[Tensor, "*batch N N2"], x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch D"]:
    """Σ_ij G_ij (x_id − x'_jd)² for each input d: by products, from a centre at which little cancels."""
    centre = x2.mean(-2, keepdim=True) if x2.shape[-2] else 0.0
    a, b = x - centre, x2 - centre
    apart = (G.sum(-1)[..., None, :] @ a.square() + G.sum(-2)[..., None, :] @ b.square())[..., 0, :]
    return apart - 2.0 * (a * (G @ b)).sum(-2)


def absolute_distance(
    x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch N N2"]:
    return torch.cdist(x, x2, p=1.0)


def absolute_by_input(
    G: Float[Tensor, "*batch N N2"], x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch D"]:
    """Σ_ij G_ij |x_id − x'_jd| for each input d."""
    pairs = zip(x.unbind(-1), x2.unbind(-1), strict=True)
    return torch.stack([(G * (a[..., :, None] - b[..., None, :]).abs()).sum((-2, -1)) for a, b in pairs], -1)


def unit(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)  # the zero vector stays zero


def cosine(x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]) -> Float[Tensor, "*batch N N2"]:
    return unit(x) @ unit(x2).mT


def with_constant(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D1"]:
    """x and a constant as large as x usually is, at length one: a plane and its offset, flat where x is far out."""
    constant = x.new_full((*x.shape[:-1], 1), x.shape[-1] ** 0.5)
    return unit(torch.cat([x, constant], -1))


def affine_cosine(x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]) -> Float[Tensor, "*batch N N2"]:
    return with_constant(x) @ with_constant(x2).mT
