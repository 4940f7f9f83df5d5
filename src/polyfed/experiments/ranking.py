"""The table of a comparison: the mean of each score over the seeds, its std, and who comes first.

>>> of_seeds = {"a": [{"pulse": {"rmse": 2.0}}, {"pulse": {"rmse": 4.0}}], "b": [{"pulse": {"rmse": 5.0}}]}
>>> table = ranked(of_seeds, {"pulse": "rmse"})
>>> table["a"]["pulse"]
Score(mean=3.0, std=1.4142, seeds=2, rank=1.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from polyfed.metrics import badness

Scores = Mapping[str, Mapping[str, float]]  # task → metric → value


class Score(NamedTuple):
    """One task's score of a method: over its seeds (one has no std), and its rank among the methods (ties share)."""

    mean: float
    std: float
    seeds: int
    rank: float


def ranked(of_seeds: Mapping[str, Sequence[Scores]], metric_of: Mapping[str, str]) -> dict[str, dict[str, Score]]:
    """Method → task → score. `of_seeds` has the scores of each run of a method, `metric_of` the metric that ranks a task."""
    found: dict[str, dict[str, Score]] = {method: {} for method in of_seeds}
    for task, metric in metric_of.items():
        values = {
            method: [run[task][metric] for run in runs if metric in run.get(task, {})]
            for method, runs in of_seeds.items()
        }
        values = {method: numbers for method, numbers in values.items() if numbers}
        means = np.array([np.mean(numbers) for numbers in values.values()])
        ranks = stats.rankdata([badness(metric, mean) for mean in means])
        for (method, numbers), mean, rank in zip(values.items(), means, ranks, strict=True):
            std = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else float("nan")
            found[method][task] = Score(float(mean), std, len(numbers), float(rank))
    return found
