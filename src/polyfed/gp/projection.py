"""Sums Vᵀx over many inputs, with few results: what projections and linear means are.

An optimiser like Adam moves every entry of V by about as much. Entries of size √D / 4, of which D are summed and divided by
D / 4, make sums of size one that such a step moves equally far, however wide the input is.

The products are written so that the wide side stays as it lies in memory: with V thin and x wide, (Vᵀxᵀ)ᵀ and (Gᵀx)ᵀ take half
and a third of the time of xV and of xᵀG, which autograd would compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from jaxtyping import Float

PROJECTION_STEP = 4.0


def scaled_sums(x: Float[Tensor, "*#batch N D"], V: Float[Tensor, "*#batch D d"]) -> Float[Tensor, "*batch N d"]:
    """Vᵀx for each row of x (..., N, D), with entries of V (..., D, d) that are scaled for an optimiser's steps.

    >>> scaled_sums(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5], [0.25]]))  # (0.5 + 0.5) · 4 / 2
    tensor([[2.]])
    """
    return _Sums.apply(x, V) * (PROJECTION_STEP / V.shape[-2])  # pyright: ignore[reportOperatorIssue]


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, V: Tensor) -> Tensor:
        ctx.save_for_backward(x, V)
        return (V.mT @ x.mT).mT

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (G,) = grad_outputs
        x, V = ctx.saved_tensors
        grad_x = (G @ V.mT).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        grad_V = (G.mT @ x).mT.sum_to_size(V.shape) if ctx.needs_input_grad[1] else None
        return grad_x, grad_V
