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

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyfed.kinds import KINDS
from polyfed.metrics import badness
from polyfed.report.statistics import ALPHA, critical_difference, holm, ranks, wilcoxon

if TYPE_CHECKING:
    from polyfed.report.tables.comparison import Group

Blocks = dict[tuple[str, int], float]  # (client, seed) → value


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
