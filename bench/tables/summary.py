"""From cells to figures: mean ranks, paired wins, coverage, scores with their spread over the seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

RANKED = ("rmse", "nlpd", "log_loss", "auroc")
HIGHER = ("auroc", "accuracy")
PLACE = ["table", "scenario", "labels", "seed", "task", "metric"]


def long(lines: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """One score in a row."""
    rows = []
    for line in lines:
        place = {name: line[name] for name in ("table", "scenario", "labels", "seed")}
        for task, scores in line["scores"].items():
            for metric, value in scores.items():
                rows.append(
                    {**place, "task": task, "metric": metric, "method": line["variant"]["label"], "value": value}
                )
    return pd.DataFrame(rows, columns=[*PLACE, "method", "value"])


def ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """The rank of each method in each place where all of them have a score; ties share theirs."""
    wide = _wide(scores[scores["metric"].isin(RANKED)]).dropna()
    if wide.empty:
        return wide
    higher = wide.index.get_level_values("metric").isin(HIGHER)
    signed = np.where(higher[:, None], -wide.to_numpy(), wide.to_numpy())
    return pd.DataFrame(stats.rankdata(signed, axis=1), index=wide.index, columns=wide.columns)


def mean_ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean rank and its spread over the tables, best first; last those that were not run everywhere.

    The former are ranked among themselves. Each of the latter is ranked among all these where it was run.
    """
    n = scores.groupby("method")["value"].size()
    partial = list(n.index[n < n.max()])
    lines = _lines(ranked(scores[~scores["method"].isin(partial)])).sort_values("rank")
    for method in partial:
        others = scores[~scores["method"].isin([other for other in partial if other != method])]
        lines = pd.concat([lines, _lines(ranked(others)).loc[[method]]])
    return lines


def _lines(ranks: pd.DataFrame) -> pd.DataFrame:
    std = ranks.groupby("table").mean().std(ddof=0)
    return pd.DataFrame({"rank": ranks.mean(), "std": std, "places": len(ranks)})


@dataclass(frozen=True)
class Pair:
    share: float  # of the places where one is ahead; level counts half
    places: int
    by_metric: dict[str, float]


def ahead(scores: pd.DataFrame, one: str, other: str) -> Pair:
    """How often a method is better than another, place by place."""
    wide = _wide(scores[scores["metric"].isin(RANKED)])[[one, other]].dropna()
    sign = np.where(wide.index.get_level_values("metric").isin(HIGHER), -1.0, 1.0)
    won = (np.sign(sign * (wide[other] - wide[one])) + 1) / 2
    by_metric = won.groupby("metric").mean().to_dict()
    return Pair(
        float(won.mean()) if len(won) else float("nan"), len(won), {str(k): float(v) for k, v in by_metric.items()}
    )


def averages(scores: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean over tasks of a kind and seeds, and the spread over the seeds, of each metric and method."""
    per_seed = scores.groupby([*by, "metric", "method", "seed"])["value"].mean()
    grouped = per_seed.groupby([*by, "metric", "method"])
    return pd.DataFrame({"mean": grouped.mean(), "std": grouped.std(ddof=0).fillna(0.0)})


def _wide(scores: pd.DataFrame) -> pd.DataFrame:
    return scores.pivot_table(index=PLACE, columns="method", values="value", aggfunc="first")
