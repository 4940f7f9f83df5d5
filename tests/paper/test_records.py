"""Ranks, tables and claims, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from polyfed.paper import records as room
from polyfed.paper.measures import Measure
from polyfed.paper.presets import Block, Setting, Variant
from polyfed.paper.records import Claim, Record, collect, holds, published
from polyfed.paper.tables import tables


class Cell:
    def __init__(self, method, folder):
        self.method, self.folder = method, folder


VALUES = {  # (method, seed) → (mse, accuracy)
    ("pfed-mul", 0): (0.2, 0.9),
    ("pfed-mul", 1): (0.4, 0.8),
    ("fedavg", 0): (0.5, 0.7),
    ("fedavg", 1): (0.5, 0.8),
}


@pytest.fixture
def found(monkeypatch):
    """Two methods, two seeds, at the size 50x10 of CelebA; no run is completed."""

    def measure(block, cell):
        mse, accuracy = VALUES[cell.method, block.seed]
        return [Measure("mouth", "mse", mse), Measure("smile", "accuracy", accuracy)]

    monkeypatch.setitem(room.MEASURES, "prediction", measure)
    setting = Setting(name="50x10", clients=10)
    blocks = [
        Block(
            "celeba",
            setting,
            Variant(),
            seed,
            None,
            None,
            tuple(Cell(m, f"{m}-{seed}") for m in ("pfed-mul", "fedavg")),
        )
        for seed in (0, 1)
    ]
    return lambda failed=(): collect(blocks, "prediction", failed, published("table1"))


def test_the_mean_over_the_seeds_its_spread_and_what_was_published(found):
    mul, avg = (next(r for r in found() if (r.row, r.metric) == (row, "mse")) for row in ("pfed-mul", "fedavg"))
    assert (mul.mean, mul.std, mul.seeds) == pytest.approx((0.3, 0.2 / math.sqrt(2), 2))
    assert (mul.rank, avg.rank) == (1, 2)
    assert (mul.published, avg.published) == (0.301, 0.394)
    accuracy = next(r for r in found() if (r.row, r.metric) == ("fedavg", "accuracy"))
    assert (accuracy.mean, accuracy.rank) == (pytest.approx(0.75), 2)


def test_a_run_that_failed_does_not_count(found):
    left = next(r for r in found({"pfed-mul-1"}) if (r.row, r.metric) == ("pfed-mul", "mse"))
    assert (left.mean, left.std, left.seeds) == (0.2, None, 1)


def test_the_table_in_markdown(found):
    (table,) = tables(found())
    assert table.markdown().splitlines() == [
        "**celeba**",
        "",
        "| method | MSE | published | accuracy % | published | mean rank |",
        "|:--|--:|--:|--:|--:|--:|",
        "| pfed-mul | 0.300 ± 0.141 (1) | 0.301 | 85.00 ± 7.07 (1) | 90.76 | 1.00 |",
        "| fedavg | 0.500 ± 0.000 (2) | 0.394 | 75.00 ± 7.07 (2) | 89.59 | 2.00 |",
    ]


def record(row, mean, *, metric="ece", data="celeba", round=None, case=""):
    return Record(data, "50x10", "", row, row, "smile", metric, case, round, mean, None, 1)


def test_a_claim_is_looked_at_wherever_it_can_be():
    claim = Claim("a is best", "ece", "a", "*")
    one = [record("a", 0.1), record("b", 0.2), record("c", 0.3)]
    assert holds(claim, one) == (1, 1)
    two = [*one, record("a", 0.3, data="dogcat"), record("b", 0.2, data="dogcat")]
    assert holds(claim, two) == (1, 2)
    assert holds(claim, [record("b", 0.2)]) == (0, 0)  # a was not completed
    assert holds(Claim("c is worst", "ece", "*", "c"), one) == (1, 1)
    assert holds(Claim("b is best but for a", "ece", "b", "*", without=["a"]), one) == (1, 1)
    assert holds(Claim("b is worst", "ece", "*", "b"), one) == (0, 1)


def test_a_claim_about_rounds_is_about_the_last_and_higher_may_be_better():
    claim = Claim("a is best", "accuracy", "a", "*")
    of_rounds = [
        record("a", 0.9, metric="accuracy", round=1),
        record("b", 0.5, metric="accuracy", round=1),
        record("a", 0.6, metric="accuracy", round=2),
        record("b", 0.7, metric="accuracy", round=2),
    ]
    assert holds(claim, of_rounds) == (0, 1)
    threshold = Claim("better than chance", "auroc", "a", 0.5, "masked, variance")
    masked = [
        record("a", 0.8, metric="auroc", case="masked, variance"),
        record("a", 0.4, metric="auroc", case="blurred"),
    ]
    assert holds(threshold, masked) == (1, 1)
