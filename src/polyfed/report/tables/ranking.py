"""Who comes first, and whether it is more than luck: mean ranks, and methods in pairs.

A pair or a block is one client with one seed (and one task, where tasks are put together). The same client with another
seed has another split, but it is the same client: the tests take them for independent, so what they call different is a
little less sure than they say.
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
    table = [row for task, kind in kinds_of(groups).items() for row in _shared(groups, task, KINDS[kind].headline)]
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
    means = {group.name: _seeds_mean(group, task, metric) for group in groups if group.name in found}
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


def _shared(groups: Sequence[Group], task: str, metric: str) -> list[list[float]]:
    """How bad each line is, in every block that all of them have."""
    found = [blocks(group, task, metric) for group in groups]
    common = set(found[0]).intersection(*found[1:])
    # What differs by rounding alone is equal.
    return [[round(badness(metric, one[at]), 12) for one in found] for at in sorted(common)]


def by_seed_of(group: Group, task: str, metric: str) -> list[list[float]]:
    """The scores of the clients, seed by seed, where there are any."""
    of_seeds = [[of.get(task, {}).get(metric) for of in run.history.final().values()] for run in group.runs]
    known = [[value for value in values if value is not None] for values in of_seeds]
    return [values for values in known if values]


def _seeds_mean(group: Group, task: str, metric: str) -> float:
    """As the table has it: each seed counts once."""
    return float(np.mean([np.mean(values) for values in by_seed_of(group, task, metric)]))
