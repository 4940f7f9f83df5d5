"""Tests of differences: against scipy, and by counting every assignment of signs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy
from scipy import stats

from polyfed.report.statistics import critical_difference, holm, ranks, wilcoxon

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [1, 5, 12, 25])
def test_few_pairs_are_those_of_scipy(n):
    differences = RNG.normal(0.3, 1.0, n)
    assert wilcoxon(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_many_pairs_are_those_of_scipy_with_ties():
    differences = RNG.integers(-3, 5, 200)
    differences = differences[differences != 0]
    normal = "asymptotic" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15) else "approx"
    expected = stats.wilcoxon(differences, method=normal, correction=False).pvalue
    assert wilcoxon(differences) == pytest.approx(expected)


def test_ties_are_counted_one_by_one():
    differences = [1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 0.0]
    rank = stats.rankdata(np.abs(differences[:-1]))
    sums = [np.dot(rank, signs) for signs in itertools.product([0, 1], repeat=6)]
    least = rank[2]
    assert wilcoxon(differences) == pytest.approx(2 * np.mean([one <= least for one in sums]))


def test_nothing_differs_from_nothing():
    assert wilcoxon([0.0, 0.0]) == wilcoxon([]) == 1.0


def test_ranks_are_those_of_scipy():
    values = RNG.integers(0, 6, 30).astype(float)
    np.testing.assert_array_equal(ranks(values), stats.rankdata(values))


def test_holm_is_that_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="the extra rivals is not installed")
    p = RNG.uniform(0, 0.2, 7)
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1])


@pytest.mark.parametrize("k", range(2, 21))
def test_the_critical_difference_is_that_of_the_studentised_range(k):
    q = stats.studentized_range.ppf(0.95, k, math.inf) / math.sqrt(2)
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / 84), abs=1e-3 * math.sqrt(k))


def test_a_single_method_or_block_has_no_critical_difference():
    assert critical_difference(1, 10) is critical_difference(3, 1) is critical_difference(21, 10) is None
