"""What a network makes of inputs, as a function of its parameters (deepkernel, sec. 4.3), in one go or in chunks.

Wilson, Hu, Salakhutdinov, Xing: "Deep Kernel Learning", AISTATS 2016, arXiv:1511.02222.

A chunk is not a minibatch. Every input passes the network by itself: batch norms use the statistics they have, never those
of a batch. So the features do not depend on how inputs are grouped, and the E-step, the kernels and the bound see all of a
client at once. Nothing has to be rescaled: the gradient is that of the whole bound, summed over the chunks by the chain
rule. Only memory differs: the backward pass computes each chunk again, so the activations of one are alive at a time, for
about half as much work again.

>>> net, x = nn.Linear(2, 1), torch.ones(5, 2, dtype=torch.float64)
>>> values = {"weight": torch.tensor([[1.0, 3.0]]), "bias": torch.zeros(1)}
>>> feature_map(net, values, x, chunk=2).T
tensor([[4., 4., 4., 4., 4.]], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


def feature_map(network: nn.Module, values: Mapping[str, Tensor], x: Tensor, chunk: int | None = None) -> Tensor:
    """η_θ(x) in float64, whatever the network computes in; `chunk` inputs at once, all of them if None."""
    x = x.to(next(network.parameters(), x).dtype)

    def through(part: Tensor) -> Tensor:
        # The parameters are put in place within: computed again later, the network no longer has them.
        return functional_call(network, dict(values), (part,))

    if chunk is None or len(x) <= chunk:
        return through(x).to(torch.float64)
    # No random state to restore: networks under a GP do not draw.
    parts = [checkpoint(through, part, use_reentrant=False, preserve_rng_state=False) for part in x.split(chunk)]
    return torch.cat(parts).to(torch.float64)  # pyright: ignore[reportArgumentType, reportCallIssue]
