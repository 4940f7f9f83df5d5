"""What kernels see of inputs: features that a network makes, in one go or in chunks, and sums Vᵀx of many inputs or features.

**Features** (deepkernel, sec. 4.3). Wilson, Hu, Salakhutdinov, Xing: "Deep Kernel Learning", AISTATS 2016, arXiv:1511.02222. A
chunk is not a minibatch. Every input passes the network by itself: batch norms use the statistics they have, never those
of a batch. So the features do not depend on how inputs are grouped, and the E-step, the kernels and the bound see all of a
client at once. Nothing has to be rescaled: the gradient is that of the whole bound, summed over the chunks by the chain
rule. Only memory differs: the backward pass computes each chunk again, so the activations of one are alive at a time, for
about half as much work again.

**Sums** with few results: what projections and linear means are. An optimiser like Adam moves every entry of V by about as
much. Entries of size √D / 4, of which D are summed and divided by D / 4, make sums of size one that such a step moves equally
far, however wide the input is. The products are written so that the wide side stays as it lies in memory: with V thin and x
wide, (Vᵀxᵀ)ᵀ and (Gᵀx)ᵀ take half and a third of the time of xV and of xᵀG, which autograd would compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from jaxtyping import Float

PROJECTION_STEP = 4.0


def feature_map(network: nn.Module, values: Mapping[str, Tensor], x: Tensor, chunk: int | None = None) -> Tensor:
    """η_θ(x) in float64, whatever the network computes in; `chunk` inputs at once, all of them if None.

    >>> net, x = nn.Linear(2, 1), torch.ones(5, 2, dtype=torch.float64)
    >>> values = {"weight": torch.tensor([[1.0, 3.0]]), "bias": torch.zeros(1)}
    >>> feature_map(net, values, x, chunk=2).T
    tensor([[4., 4., 4., 4., 4.]], dtype=torch.float64)
    """
    x = x.to(next(network.parameters(), x).dtype)

    def through(part: Tensor) -> Tensor:
        # The parameters are put in place within: computed again later, the network no longer has them.
        return functional_call(network, dict(values), (part,))

    if chunk is None or len(x) <= chunk:
        return through(x).to(torch.float64)
    # No random state to restore: networks under a GP do not draw.
    parts = [checkpoint(through, part, use_reentrant=False, preserve_rng_state=False) for part in x.split(chunk)]
    return torch.cat(parts).to(torch.float64)  # pyright: ignore[reportArgumentType, reportCallIssue]


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
