"""Rules of aggregation, between the check of the updates and the method's own `aggregate`, the same for every method.

`mean` leaves the updates as they are: the methods' averages are exact, and one client can move them anywhere. Every other rule
changes what the method averages, array by array, among the clients that have something to say about an array (who lacks a
task sends zeros): `clip` shortens what is longer than `CLIP` times the median norm (norm bounding, Sun et al. 2019,
arXiv:1911.07963, with a bound that follows the clients); the others put one value in the place of all: the median of each
coordinate, its mean without the `trim` share at both ends (both Yin et al. 2018, arXiv:1803.01498), or the update of the one
client that is closest to its nearest ones (`krum`, Blanchard et al. 2017, NeurIPS 30).

Pooled statistics have a rule of their own under all of them but `mean`: no client's ratio of sum to count is above `RATIO`
times the median ratio, nor its count, where that is no number of labels, above `RATIO` times what is usual per label.
Evidence (`Method.is_evidence`) and whole numbers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from polyfed.methods import ClientUpdate, Method, State

CLIP = 2.0  # times the median norm: see docs/security.md for what 1, 2 and 3 cost and save
RATIO = 3.0
_BLOCK = 2**24  # distances held at once

Rule = Callable[[Tensor], Tensor]  # (clients, numbers), none of them all zero → the same shape, or one row for all
Updates = Mapping[str, ClientUpdate]


def robust(method: Method, server: State, updates: Updates, aggregation: str, trim: float) -> dict[str, ClientUpdate]:
    """The updates that `aggregate` may average. The same objects, where a rule leaves them as they are."""
    sent = [updates[client] for client in sorted(updates)]
    rule = _rules(trim)[aggregation]
    if rule is not None:
        template = method.template(server)
        arrays = {n: v for n, v in template.arrays.items() if v.is_floating_point() and not method.is_evidence(n)}
        changed = [_apply(rule, name, sent) for name in arrays]
        bounded = [_bounded(name, sent, method.counted_tasks(server, name)) for name in template.pooled]
        sent = [_with(update, i, changed, bounded) for i, update in enumerate(sent)]
    return dict(zip(sorted(updates), sent, strict=True))


def clipped(values: Tensor, factor: float = CLIP) -> Tensor:
    """Rows no longer than `factor` times the median norm; of two in the middle the lower one counts.

    >>> clipped(torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, -500.0]]))
    tensor([[  3.,   4.],
            [  5.,   0.],
            [  0., -10.]])
    """
    norms = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
    share = (factor * norms.median() / norms).clamp_max(1.0)
    return values * share.to(values.dtype)[:, None]


def median(values: Tensor) -> Tensor:
    """Of each coordinate; the mean of the two in the middle.

    >>> median(torch.tensor([[1.0], [2.0], [9.0], [-50.0]]))
    tensor([[1.5000]])
    """
    n, ordered = len(values), values.sort(0).values
    return (ordered[(n - 1) // 2] + ordered[n // 2])[None] / 2


def trimmed(values: Tensor, share: float) -> Tensor:
    """The mean of each coordinate without the largest and the smallest, a share of the clients (rounded down) at each end.

    >>> trimmed(torch.tensor([[1.0], [2.0], [9.0], [-50.0]]), 0.25)
    tensor([[1.5000]])
    """
    n = len(values)
    cut = min(int(share * n), (n - 1) // 2)
    return values.sort(0).values[cut : n - cut].mean(0, keepdim=True)


def krum(values: Tensor, share: float) -> Tensor:
    """The row whose n − f − 2 nearest others (at least one) are nearest, where f is the share of n, rounded down.

    >>> krum(torch.tensor([[1.0], [1.1], [1.3], [1.6], [9.0]]), 0.2)
    tensor([[1.1000]])
    """
    n = len(values)
    if n < 2:
        return values
    nearest = max(n - int(share * n) - 2, 1)
    values64 = values.to(torch.float64)
    scores = []
    for block in values64.split(max(1, _BLOCK // n)):
        squares = torch.cdist(block, values64, compute_mode="donot_use_mm_for_euclid_dist").square()
        scores.append(squares.topk(nearest + 1, dim=1, largest=False).values.sum(1))  # one of them is its own, zero
    return values[torch.cat(scores).argmin()][None]


def _rules(trim: float) -> dict[str, Rule | None]:
    return {
        "clip": lambda values: clipped(values),
        "mean": None,
        "median": median,
        "trimmed": lambda values: trimmed(values, trim),
        "krum": lambda values: krum(values, trim),
    }


AGGREGATIONS = tuple(_rules(0.0))


def _apply(rule: Rule, name: str, sent: Sequence[ClientUpdate]) -> tuple[str, dict[int, Tensor]]:
    """Under a rule, what stands for this array of the clients at these places; the others keep theirs."""
    values = torch.stack([update.arrays[name] for update in sent])
    flat = values.reshape(len(sent), -1)
    speak = (flat != 0).any(1).nonzero()[:, 0]
    if not len(speak):
        return name, {}
    said = flat[speak]
    ruled, shape = rule(said), values.shape[1:]
    if len(ruled) < len(said):
        same = ruled[0].reshape(shape).clone()
        return name, dict.fromkeys(speak.tolist(), same)
    moved = (ruled != said).any(1).nonzero()[:, 0].tolist()
    return name, {int(speak[i]): ruled[i].reshape(shape) for i in moved}


def _bounded(
    name: str, sent: Sequence[ClientUpdate], tasks: Sequence[str] | None
) -> tuple[str, dict[int, tuple[Tensor, Tensor]]]:
    """The pooled statistics of the clients whose ratio, or whose count per label, is far above what is usual."""
    total, count = (torch.stack([update.pooled[name][i] for update in sent]) for i in (0, 1))
    most = count
    if tasks is None:  # a count that is no number of labels
        labels = torch.tensor([float(sum(update.counts.values())) for update in sent], dtype=torch.float64)
        labels = labels.reshape(-1, *(1,) * (count.dim() - 1)).expand_as(count)
        most = torch.minimum(count, RATIO * _usual(torch.where(labels > 0, count / labels, 0.0)) * labels)
    share = torch.where(count > 0, most / count, 1.0)
    limit = RATIO * _usual(torch.where(count > 0, total / count, 0.0)) * most
    after = torch.minimum(total * share, limit)
    changed = ((after != total) | (most != count)).reshape(len(sent), -1).any(1).nonzero()[:, 0].tolist()
    return name, {i: (after[i], most[i]) for i in changed}


def _usual(ratios: Tensor) -> Tensor:
    """The median over the clients that have one above zero; without any there is nothing to bound."""
    known = torch.where(ratios > 0, ratios, torch.nan).nanmedian(0).values
    return torch.where(known.isnan(), torch.zeros_like(known), known)


def _with(
    update: ClientUpdate,
    i: int,
    changed: Sequence[tuple[str, dict[int, Tensor]]],
    bounded: Sequence[tuple[str, dict[int, tuple[Tensor, Tensor]]]],
) -> ClientUpdate:
    arrays = {name: at[i] for name, at in changed if i in at}
    pooled = {name: at[i] for name, at in bounded if i in at}
    if not arrays and not pooled:
        return update
    return replace(update, arrays={**update.arrays, **arrays}, pooled={**update.pooled, **pooled})
