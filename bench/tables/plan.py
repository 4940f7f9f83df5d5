"""What is measured: tables × scenarios × labels × seeds × methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .cells import Cell, Variant
from .sets import SETS

LABELS = (5, 10, 20, 50)
SEEDS = (0, 1, 2, 3, 4)
FEW_SEEN = (10, 20)  # labels of the scenarios in which some clients have none

FEDERATED = ("pfed-hier", "pfed-mul", "pfed-st", "fedavg", "fedper")
ENDS = ("local", "pooled")
RIVALS = (
    "sklearn-hgb-pooled",
    "sklearn-linear-pooled",
    "catboost-pooled",
    "mixed-effects",
    "sklearn-rf-local",
    "sklearn-gp-local",
)
METHODS = (*FEDERATED, *ENDS, *RIVALS)
ROUNDS = {"fedavg": 50, "fedper": 50}
GP_ROUNDS = 25
FIT_ONCE = 1  # rounds of what is no federation
ALONE = ("local", "sklearn-rf-local", "sklearn-gp-local")  # with no label they can only guess
# An hour of one core is what it may take: methods that say little about clients without labels are left out there, and
# the exact Gaussian process of all rows where they are many.
ONLY_FEW = ("pfed-st", "fedper", "pooled", "sklearn-rf-local", "sklearn-gp-local")
MOST_LABELS = {"pooled": 20}


@dataclass(frozen=True)
class Plan:
    tables: Sequence[str] = tuple(SETS)
    scenarios: Sequence[str] = ("few", "task", "client")
    labels: Sequence[int] = LABELS
    seeds: Sequence[int] = SEEDS
    methods: Sequence[str] = METHODS
    short: bool = True  # leave out what takes long and says little

    def cells(self) -> Iterator[Cell]:
        """Problem by problem: the methods of one stand together."""
        variants = [Variant.parse(text) for text in self.methods]
        for table in self.tables:
            for scenario in self.scenarios:
                for labels in self.labels:
                    for seed in self.seeds:
                        for variant in variants:
                            if not self.short or worthwhile(scenario, labels, variant.method):
                                yield Cell(table, scenario, labels, seed, variant, rounds_of(variant))


def worthwhile(scenario: str, labels: int, method: str) -> bool:
    """Whether a cell belongs to what an hour has time for."""
    if scenario != "few" and (labels not in FEW_SEEN or method in ONLY_FEW):
        return False
    if scenario == "client" and method in ALONE:
        return False
    return labels <= MOST_LABELS.get(method, labels)


def rounds_of(variant: Variant) -> int:
    usual = GP_ROUNDS if variant.method in ("pfed-hier", "pfed-mul", "pfed-st", *ENDS) else FIT_ONCE
    return int(variant.options.get("rounds", ROUNDS.get(variant.method, usual)))
