"""Figures of the publication, read from `presets/published.toml`, and what its pictures say.

>>> published("table1").figure("celeba", "10x20", "pfed-mul", "accuracy")
0.8636
>>> published("table1").figure("celeba", "10x20", "fedpac", "mse") is None
True
>>> published("calibration").source
'fig:calibration'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyfed.paper.presets import read_toml


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
    """What was published of an experiment."""
    found = read_toml("published")[preset]
    claims = tuple(Claim(**claim) for claim in found.get("claims", []))
    return Published(found["source"], found.get("figures", {}), claims)
