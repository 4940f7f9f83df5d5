"""The first rounds of functions of principal components: what a client sends of its inputs, and what the server makes of it.

Sums alone leave a client, but sums of few rows say much of these rows: those of a single one are that row. So a client with
fewer than `FEWEST` rows sends zeros, and its rows are seen through the components of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyfed.gp.components import Components, Products
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix

PASSES = "pass"  # in messages: what is sent in a pass
COMPONENTS = "components"
FEWEST = 2
LARGEST = 1e4  # mean square of a feature: a hundred standard deviations
MOST_ROWS = 1000  # for each label: most of them without one, at a client that still learns from it
SLACK = 1e-6  # relative, of what is checked: sums are rounded


def sent(x: Tensor, Q: Tensor) -> State:
    """Of one client."""
    found = Products.of(x if len(x) >= FEWEST else x[:0], Q)
    return with_prefix(PASSES, {"products": found.products, "inputs": found.inputs, "count": found.count})


def form(Q: Tensor) -> State:
    """Zeros of the same form."""
    return sent(Q.new_zeros(0, len(Q)), Q)


def total(updates: Sequence[ClientUpdate]) -> Products:
    """Of all clients."""
    each = [Products(**strip_prefix(update.arrays, PASSES)) for update in updates]
    return sum(each[1:], each[0])


def objection(arrays: State, n_labels: int, Q: Tensor) -> str | None:
    """Why no rows of a client with so many labels can have such sums, if none can."""
    found = Products(**strip_prefix(arrays, PASSES))
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


def stored(components: Components) -> State:
    """In a state."""
    return with_prefix(
        COMPONENTS,
        {
            "directions": components.directions,
            "centre": components.centre,
            "variances": components.variances,
        },
    )


def found_in(state: State) -> Components | None:
    """The components that a state has, if it has any."""
    return Components(**strip_prefix(state, COMPONENTS)) if f"{COMPONENTS}/directions" in state else None
