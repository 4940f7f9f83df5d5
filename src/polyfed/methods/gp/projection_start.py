"""Where projections start: towards what tells the labels, as the clients of the first round find it.

A random start spends its first rounds looking for a direction, the more of them the fewer labels there are. The scores of the
rows, r = ∂ℓ/∂f at f = 0, are what any likelihood says about the direction in which its output should move; their moments with
the inputs, Σ r x, are the step that a linear f would take first. In round 1 each client sends these in place of the gradient
of the projection, from the labels that it does not keep apart, and scaled so that its own inputs have spread one along them.
What clients have in common adds up in their mean, and what is chance in each of them does not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp import Prior, Rows
from polyfed.gp.projection import scaled_sums

STARTS = ("random", "moments")
# Of the inputs along directions on which all clients agree; chosen of 0.1, 0.3 and 1 on validation images of CelebA and Dogcat.
SPREAD = 0.1
PROJECTION = "features.projection"


def directions(prior: Prior, rows: Rows, others: Rows) -> Tensor:
    """Of one client, a direction for each output of each latent, in the shape of the projection.

    `others` are rows that do not enter: along a direction that is made of few inputs, these very inputs are spread too wide.
    """
    assert prior.projected is not None
    with torch.no_grad():
        at_zero = torch.zeros(len(rows), dtype=torch.float64)
        _, scores = rows.sites(prior, at_zero, torch.ones_like(at_zero))
        per_input = rows.A.new_zeros(len(rows.x), rows.A.shape[-1])
        per_input.index_add_(0, rows.at, rows.A * scores[:, None])
        inputs, measured = (_centred(prior.features_of(some.x).double()) for some in (rows, others))
        found = []
        for b in range(prior.n_latents):
            part = slice(b * prior.projected, (b + 1) * prior.projected) if prior.apart else slice(None)
            moments = inputs[:, part].mT @ per_input
            spread = scaled_sums(measured[:, part], moments).square().sum(0).div(max(len(measured), 1)).sqrt()
            found.append(_laid_out(moments / torch.where(spread > 0, spread, torch.inf), b, prior.dims))
        return torch.cat(found, -1)


def _centred(x: Tensor) -> Tensor:
    return x - x.sum(0) / max(len(x), 1)


def _laid_out(moments: Tensor, b: int, dims: int) -> Tensor:
    """A column for each dimension of latent b: the outputs in turn, and zero where there are more dimensions than outputs.

    >>> _laid_out(torch.tensor([[1.0, 2.0, 3.0]]), 1, dims=2)
    tensor([[3., 1.]])
    >>> _laid_out(torch.tensor([[1.0, 2.0, 3.0]]), 1, dims=4)
    tensor([[1., 2., 3., 0.]])
    """
    n = moments.shape[-1]
    if n <= dims:
        return torch.nn.functional.pad(moments, (0, dims - n))
    return moments[:, [(b * dims + j) % n for j in range(dims)]]


def started(projection: Tensor, found: Tensor) -> Tensor:
    """The projection after round 1: the random one, which is small, and what the clients found."""
    return projection + SPREAD * found
