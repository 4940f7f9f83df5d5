"""Robust rules: the parts of the aggregation pipeline (engine/pipeline.py) that bound what one client can do.

Without one (`mean`) the methods' averages are exact, and one client can move them anywhere. A rule
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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from polyfed.methods import ClientUpdate, Method, State
from polyfed.methods.update_batch import Columns, UpdateBatch
from polyfed.seeds import Stream

CLIP = 2.0  # times the median norm: see docs/security.md for what 1, 2 and 3 cost and save
RATIO = 3.0
_BLOCK = 2**24  # distances held at once

# (clients, numbers), none of them all zero, and the share `trim` → the same shape, or one row for all
Rule = Callable[[Tensor, float], Tensor]
Updates = Mapping[str, ClientUpdate]
Moved = tuple[Tensor, ...]  # places of clients, and the values that stand for theirs


@dataclass(frozen=True)
class Aggregation:
    """What a part may look at beside the updates.

    Attributes:
        method: whose updates these are; `method.template(server)` has their names and shapes, `method.is_evidence(name)` says
            which arrays add up and are not averaged.
        server: its state before this round.
        trim: the share of clients that are assumed to be malicious.
        stream: the randomness of this part in this round; the same in every repetition of it.
    """

    method: Method
    server: State
    trim: float
    stream: Stream


def by_rule(rule: Rule, updates: Updates, context: Aggregation) -> dict[str, ClientUpdate]:
    """The updates that may be averaged under a rule. The same objects, where it leaves them as they are."""
    sent, method, server = [updates[client] for client in sorted(updates)], context.method, context.server
    template, columns = method.template(server), Columns(sent)
    arrays = {n: v for n, v in template.arrays.items() if v.is_floating_point() and not method.is_evidence(n)}
    ruled = {name: _ruled(rule, columns.array(name), context.trim) for name in arrays}
    counted = {name: method.counted_tasks(server, name) for name in template.pooled}
    bounded = {name: _bounded(columns.pooled(name), sent, tasks) for name, tasks in counted.items()}
    for i, update in _changed(sent, ruled, bounded).items():
        # What no rule is for stays as it is, and with its client.
        whole = len(arrays) == len(template.arrays)
        sent[i] = update if whole else replace(update, arrays={**sent[i].arrays, **update.arrays})
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


RULES: dict[str, Rule] = {
    "clip": lambda values, trim: clipped(values),
    "median": lambda values, trim: median(values),
    "trimmed": trimmed,
    "krum": krum,
}


def _ruled(rule: Rule, values: Tensor, trim: float) -> Moved:
    """The clients whose array a rule changes, and the new values."""
    flat = values.reshape(len(values), -1)
    speak = (flat != 0).any(1).nonzero()[:, 0]
    if not len(speak):
        return speak, values[:0]
    said = flat[speak]
    ruled = rule(said, trim).expand_as(said)
    moved = (ruled != said).any(1)
    return speak[moved], ruled[moved].reshape(-1, *values.shape[1:])


def _bounded(pair: tuple[Tensor, Tensor], sent: Sequence[ClientUpdate], tasks: Sequence[str] | None) -> Moved:
    """The clients whose ratio, or count per label, is far above the usual, and the new sums and counts."""
    total, count = pair
    most = count
    if tasks is None:  # a count that is no number of labels
        labels = torch.tensor([float(sum(update.counts.values())) for update in sent], dtype=torch.float64)
        labels = labels.reshape(-1, *(1,) * (count.dim() - 1)).expand_as(count)
        most = torch.minimum(count, RATIO * _usual(torch.where(labels > 0, count / labels, 0.0)) * labels)
    share = torch.where(count > 0, most / count, 1.0)
    limit = RATIO * _usual(torch.where(count > 0, total / count, 0.0)) * most
    after = torch.minimum(total * share, limit)
    moved = ((after != total) | (most != count)).reshape(len(sent), -1).any(1).nonzero()[:, 0]
    return moved, after[moved], most[moved]


def _usual(ratios: Tensor) -> Tensor:
    """The median over the clients that have one above zero; without any there is nothing to bound."""
    known = torch.where(ratios > 0, ratios, torch.nan).nanmedian(0).values
    return torch.where(known.isnan(), torch.zeros_like(known), known)


def _changed(
    sent: Sequence[ClientUpdate], ruled: Mapping[str, Moved], bounded: Mapping[str, Moved]
) -> dict[int, ClientUpdate]:
    """The changed updates by their places, with the arrays that are ruled."""
    moved = (at for at, *_ in (*ruled.values(), *bounded.values()))
    who = torch.cat([torch.zeros(0, dtype=torch.int64), *moved]).unique()
    places = who.tolist()
    if not places:
        return {}
    theirs = Columns([sent[i] for i in places])

    def put(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
        values = values.clone()
        values[torch.searchsorted(who, at)] = new
        return values

    arrays = {name: put(theirs.array(name), at, new) for name, (at, new) in ruled.items()}
    pooled = {}
    for name, (at, *new) in bounded.items():
        total, count = (put(before, at, values) for before, values in zip(theirs.pooled(name), new, strict=True))
        pooled[name] = total, count
    batch = UpdateBatch(arrays, pooled)
    return {i: batch.update(k, sent[i].weight, sent[i].counts, sent[i].metrics) for k, i in enumerate(places)}
