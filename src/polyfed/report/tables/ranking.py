"""Who comes first, and whether it is more than luck: mean ranks, and methods in pairs.

A pair or a block is one client with one seed (and one task, where tasks are put together). The same client with another
seed has another split, but it is the same client: the tests take them for independent, so what they call different is a
little less sure than they say. These are the tests of Demšar 2006, "Statistical comparisons of classifiers over multiple
data sets", JMLR 7, with plain arrays (a report needs no scipy).

>>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])      # all six in one direction: 2 / 2⁶
0.03125
>>> critical_difference(n_methods=5, n_blocks=30)
1.1137
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyfed.kinds import KINDS
from polyfed.metrics import badness

if TYPE_CHECKING:
    from polyfed.report.tables.comparison import Group

Blocks = dict[tuple[str, int], float]  # (client, seed) → value
ALPHA = 0.05
EXACT = 25  # pairs up to which every assignment of signs is counted

# Quantiles of the studentised range at 0.95 with endless degrees of freedom over √2, from two methods to twenty.
_STUDENTISED = (
    1.960, 2.344, 2.569, 2.728, 2.850, 2.948, 3.031, 3.102, 3.164, 3.219,
    3.268, 3.313, 3.354, 3.391, 3.426, 3.458, 3.489, 3.517, 3.544,
)  # fmt: skip


class Ranking(NamedTuple):
    """Mean ranks over all blocks in which every method has a score."""

    mean: dict[str, float]  # name of the line → its mean rank, from the best
    n_blocks: int  # how many (client, task, seed) there are
    critical: float | None  # mean ranks that are nearer may differ by luck alone; None if that is not known
    wins: dict[str, dict[str, float]]  # name → name → share of blocks in which the first is better, ties counting half


def ranking(groups: Sequence[Group]) -> Ranking | None:
    """The ranks of several lines of a comparison by the headline metric of each task; None if they share no block."""
    if len(groups) < 2:
        return None
    table = []
    for task, kind in kinds_of(groups).items():
        metric = KINDS[kind].headline
        found = [blocks(group, task, metric) for group in groups]
        common = set(found[0]).intersection(*found[1:])
        # How bad each line is, in every block that all of them have; what differs by rounding alone is equal.
        table += [[round(badness(metric, one[at]), 12) for one in found] for at in sorted(common)]
    if not table:
        return None
    of_blocks = np.array([ranks(np.array(row)) for row in table])
    mean, names = of_blocks.mean(axis=0), [group.name for group in groups]
    below = (of_blocks[:, :, None] < of_blocks[:, None, :]) + 0.5 * (of_blocks[:, :, None] == of_blocks[:, None, :])
    share = below.mean(axis=0)
    order = np.argsort(mean, kind="stable").tolist()
    return Ranking(
        {names[i]: float(mean[i]) for i in order},
        len(table),
        critical_difference(len(groups), len(table)),
        {names[i]: {names[j]: float(share[i, j]) for j in order if j != i} for i in order},
    )


def leader(groups: Sequence[Group], task: str, metric: str) -> str | None:
    """The line that is best by its mean and better than all others in pairs (Wilcoxon over clients and seeds, Holm), if any."""
    found = {group.name: blocks(group, task, metric) for group in groups}
    found = {name: of_line for name, of_line in found.items() if of_line}
    if len(found) < 2:
        return None
    # As the table has it: each seed counts once.
    of_seeds = {group.name: by_seed_of(group, task, metric) for group in groups if group.name in found}
    means = {name: float(np.mean([np.mean(values) for values in seeds])) for name, seeds in of_seeds.items()}
    best = min(found, key=lambda name: badness(metric, means[name]))
    p, better = [], True
    for name, other in found.items():
        if name != best:
            pairs = found[best].keys() & other.keys()
            differences = [badness(metric, other[at]) - badness(metric, found[best][at]) for at in sorted(pairs)]
            p.append(wilcoxon(differences))
            better &= sum(differences) > 0
    return best if better and max(holm(p)) < ALPHA else None


def kinds_of(groups: Sequence[Group]) -> dict[str, str]:
    """Task → kind, of all tasks of all runs."""
    return {task: kind for group in groups for run in group.runs for task, kind in run.history.kinds.items()}


def blocks(group: Group, task: str, metric: str) -> Blocks:
    """(client, seed) → the score of a line there, where it has one."""
    return {
        (client, run.seed): value
        for run in group.runs
        for client, tasks in run.history.final().items()
        if (value := tasks.get(task, {}).get(metric)) is not None
    }


def by_seed_of(group: Group, task: str, metric: str) -> list[list[float]]:
    """The scores of the clients, seed by seed, where there are any."""
    of_seeds = [[of.get(task, {}).get(metric) for of in run.history.final().values()] for run in group.runs]
    known = [[value for value in values if value is not None] for values in of_seeds]
    return [values for values in known if values]


def wilcoxon(differences: Sequence[float]) -> float:
    """The two-sided p of the signed-rank test that paired differences are centred at 0; those that are 0 say nothing."""
    d = np.asarray([value for value in differences if value != 0], dtype=np.float64)
    if len(d) == 0:
        return 1.0
    rank = ranks(np.abs(d))
    positive, total = float(rank[d > 0].sum()), float(rank.sum())
    least = min(positive, total - positive)
    if len(d) <= EXACT:
        # Of all assignments of signs, the share whose ranks of one sign sum to no more than the least sum.
        doubled = np.rint(2 * rank).astype(int)  # ranks that are shared are halves
        ways = np.zeros(int(doubled.sum()) + 1)
        ways[0] = 1.0
        for one in doubled.tolist():
            ways[one:] += ways[:-one].copy()
        return min(1.0, 2 * float(ways[: round(2 * least) + 1].sum() / 2.0 ** len(rank)))
    deviation = math.sqrt(float((rank**2).sum()) / 4)  # with ties it is less than without
    return math.erfc((total / 2 - least) / deviation / math.sqrt(2))


def holm(p: Sequence[float]) -> list[float]:
    """The same p, corrected for being many (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate([(len(order) - i) * p[at] for i, at in enumerate(order)])
    found = np.empty(len(order))
    found[order] = np.minimum(1.0, corrected)
    return found.tolist()


def critical_difference(n_methods: int, n_blocks: int) -> float | None:
    """How far apart two mean ranks must be to differ (Nemenyi's test at 0.05); None if that is not known."""
    if not 2 <= n_methods <= len(_STUDENTISED) + 1 or n_blocks < 2:
        return None
    return _STUDENTISED[n_methods - 2] * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1 for the least; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, of_value, size = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(size) - (size - 1) / 2)[of_value]
