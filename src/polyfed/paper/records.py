"""Measures of runs become records: the mean over the seeds, its std, the rank, and the published figure.

Figures of the publication, and what its pictures say, are in `preset_files/published.toml`.

>>> published("table1").figure("celeba", "10x20", "pfed-mul", "accuracy")
0.8636
>>> published("table1").figure("celeba", "10x20", "fedpac", "mse") is None
True
>>> published("calibration").source
'fig:calibration'
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from polyfed.metrics import badness, is_better
from polyfed.paper.measures import MEASURES
from polyfed.paper.presets import Block, read_toml

UNRANKED = ("latent_coverage",)  # best at 0.95, neither low nor high


@dataclass(frozen=True)
class Claim:
    """That one method is better in a measure than another, or than a number; "*" is each other but for those `without`."""

    text: str
    metric: str
    better: str
    than: str | float
    case: str = ""
    without: Sequence[str] = ()


@dataclass(frozen=True)
class Published:
    """Of one experiment: the label of its table or picture, its figures, and its claims."""

    source: str
    figures: Mapping[str, Any]
    claims: tuple[Claim, ...]

    def figure(self, data: str, setting: str, row: str, metric: str) -> float | None:
        """What the table has for a method or a variant; accuracies are shares."""
        value = self.figures.get(data, {}).get(setting, {}).get(row, {}).get(metric)
        return value / 100 if value is not None and metric == "accuracy" else value


def published(preset: str) -> Published:
    found = read_toml("published")[preset]
    claims = tuple(Claim(**claim) for claim in found.get("claims", []))
    return Published(found["source"], found.get("figures", {}), claims)


@dataclass(frozen=True)
class Record:
    """One number of a table. `row` is the method, or the variant where several of one method are compared."""

    data: str
    setting: str
    group: str
    row: str
    method: str
    task: str
    metric: str
    case: str
    round: int | None
    mean: float
    std: float | None
    seeds: int
    rank: float | None = None
    published: float | None = None

    @property
    def contest(self) -> tuple[object, ...]:
        """Records of one contest are ranked among each other."""
        return self.data, self.setting, self.group, self.task, self.metric, self.case, self.round


def collect(blocks: Sequence[Block], what: str, failed: Container[Path], known: Published) -> list[Record]:
    """Everything that was measured, in the order of the blocks."""
    values: dict[Record, list[float]] = {}
    for block in blocks:
        for cell in block.cells:
            if cell.folder in failed:
                continue
            row = block.variant.title or cell.method
            for task, metric, value, case, round in MEASURES[what](block, cell):
                place = (block.data, block.setting.name, block.variant.group, row, cell.method)
                key = Record(*place, task, metric, case, round, mean=0.0, std=None, seeds=0)
                values.setdefault(key, []).append(value)
    made = [
        replace(
            key,
            mean=float(np.mean(found)),
            std=float(np.std(found, ddof=1)) if len(found) > 1 else None,
            seeds=len(found),
            published=known.figure(key.data, key.setting, key.row, key.metric),
        )
        for key, found in values.items()
    ]
    return _ranked(made)


def holds(claim: Claim, records: Sequence[Record]) -> tuple[int, int]:
    """In how many of the places where it can be looked at a claim holds; of rounds, after the last."""
    last = max((record.round or 0 for record in records), default=0)
    right = looked = 0
    contests: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.metric == claim.metric and (record.round or 0) == last and claim.case in ("", record.case):
            contests.setdefault(record.contest, []).append(record)
    for contest in contests.values():
        of = {record.row: record.mean for record in contest}
        named = {claim.better, claim.than} - {"*"}
        if any(isinstance(name, str) and name not in of for name in named):
            continue
        others = [mean for row, mean in of.items() if row not in named and row not in claim.without]
        better = others if claim.better == "*" else [of[claim.better]]
        than = others if claim.than == "*" else [of.get(str(claim.than), claim.than)]
        if better and than:
            looked += 1
            right += all(is_better(claim.metric, float(a), float(b)) for a in better for b in than)
    return right, looked


def _ranked(records: Sequence[Record]) -> list[Record]:
    contests: dict[tuple[object, ...], list[int]] = {}
    for i, record in enumerate(records):
        if record.metric not in UNRANKED and np.isfinite(record.mean):
            contests.setdefault(record.contest, []).append(i)
    made = list(records)
    for places in (places for places in contests.values() if len(places) > 1):
        ranks = stats.rankdata([badness(records[i].metric, records[i].mean) for i in places])
        for i, rank in zip(places, ranks, strict=True):
            made[i] = replace(records[i], rank=float(rank))
    return made
