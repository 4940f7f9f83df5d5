"""Units that no single client can choose: moments of the clients, pooled after the odd ones were drawn towards the usual.

For each column, a client counts for at most REACH times the usual number of rows, and reaches at most REACH times as far from
the middle as is usual. `usual` and `middle` are medians over the clients, so with three or more of them one liar moves neither
beyond what the others said; of two, nobody can tell which one lies. Clients that are within these bounds are pooled
exactly, to the last bit, as if their rows lay together.

>>> def says(mean, std):
...     return Moments(np.array([20]), np.array([mean]), np.array([std]))
>>> honest = [says(60.0, 10.0), says(70.0, 12.0), says(65.0, 9.0)]
>>> pool_robustly([*honest, says(1e9, 1e9)]).scaler().scale < 100
array([ True])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.data.features.scaling import Moments

REACH = 10.0  # times the usual: clients of very different sizes are honest
FEWEST = 3  # clients with values in a column; among fewer there is no majority


def pool_robustly(parts: Sequence[Moments]) -> Moments:
    """The moments of all clients' rows together, none of which weighs or reaches much further than is usual."""
    return Moments.pool(within_reach(parts))


def within_reach(parts: Sequence[Moments]) -> list[Moments]:
    """The moments of each client, drawn towards the middle where they are out of reach."""
    if len(parts) < FEWEST:
        return list(parts)
    count, mean, std = (np.stack([getattr(part, key) for part in parts]) for key in ("count", "mean", "std"))
    there = count > 0
    judged = there.sum(axis=0) >= FEWEST
    most = np.where(judged, np.floor(REACH * _lower_median(count, there)), np.inf)
    middle = _lower_median(mean, there)
    # A quarter of each, so that differences and lengths of finite numbers are finite.
    away = mean / 4 - middle / 4
    length = np.hypot(std / 4, away)
    usual = _lower_median(length, there & (length > 0))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        out = judged & there & (length / REACH > usual) & (usual > 0)
        shrink = np.where(out, REACH * (usual / np.where(length > 0, length, 1.0)), 1.0)
        drawn = middle + 4 * (shrink * away)
    largest = np.finfo(np.float64).max
    mean = np.where(out, np.clip(drawn, -largest, largest), mean)
    std = np.where(out, shrink * std, std)
    count = np.minimum(count, most).astype(np.int64)
    return [Moments(*row) for row in zip(count, mean, std, strict=True)]


def _lower_median(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of each column the median of the chosen entries, of two in the middle the lower one; 0 where none is chosen."""
    ordered = np.sort(np.where(chosen, values, np.inf), axis=0)
    at = np.maximum(chosen.sum(axis=0) - 1, 0) // 2
    found = np.take_along_axis(ordered, at[None, :], axis=0)[0]
    return np.where(np.isfinite(found), found, 0.0)
