"""The first rounds of functions of principal components: what a client sends of its inputs, and what the server makes of it.

Sums alone leave a client, but sums of few rows say much of these rows: those of a single one are that row. So a client with
fewer than `FEWEST` rows sends zeros, and its rows are seen through the components of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp.components import Products

FEWEST = 2
LARGEST = 1e4  # mean square of a feature: a hundred standard deviations
MOST_ROWS = 1000  # for each label: most of them without one, at a client that still learns from it
SLACK = 1e-6  # relative, of what is checked: sums are rounded


def sent(x: Tensor, Q: Tensor) -> Products:
    """Of one client."""
    return Products.of(x if len(x) >= FEWEST else x[:0], Q)


def objection(found: Products, n_labels: int, Q: Tensor) -> str | None:
    """Why no rows of a client with so many labels can have such sums, if none can."""
    n = float(found.count)
    if n < 0 or n != round(n) or n > MOST_ROWS * max(n_labels, 1):
        return f"it has {n:g} rows and {n_labels} labels"
    inner = Q.mT @ found.products
    size = float(inner.abs().max())
    if not torch.allclose(inner, inner.mT, rtol=0, atol=SLACK * size):
        return "its products of inputs are not symmetric"
    if float(inner.trace()) > LARGEST * n * len(Q):
        return f"its features have a mean square above {LARGEST:g} (scale the features)"
    mean = (found.inputs @ Q) / max(n, 1.0)
    scatter = inner - n * torch.outer(mean, mean)  # of its rows around their mean, so positive semi-definite
    scatter.diagonal().add_(SLACK * (size + 1e-300))
    if int(torch.linalg.cholesky_ex(0.5 * (scatter + scatter.mT)).info):
        return "its products of inputs are those of no rows"
    return None
