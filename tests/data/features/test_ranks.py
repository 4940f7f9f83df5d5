"""Ranks of inputs among those of all clients: how near they are to the truth, what is sent for them, what is rejected."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.preprocessing import QuantileTransformer

from polyfed.data import Federation, Limits, Split, describe
from polyfed.data.features.transforms import MOST_GROUPS, MOST_KNOTS, Ranks, Sketch
from polyfed.data.prepared import PreparedFederation
from polyfed.data.splits import divide
from polyfed.errors import DataError

NUMBERS = st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float)


def incomes(n=300, seed=0):
    rng = np.random.default_rng(seed)
    ward = rng.choice([*"abc"], n)
    pay = rng.lognormal(3 + 0.5 * (ward == "a"), 2) * (rng.random(n) > 0.3)  # three in ten earn nothing
    return pd.DataFrame({"ward": ward, "pay": pay, "age": rng.normal(50, 10, n), "y": rng.normal(size=n)})


def federation(table, **options):
    usual = {"client": "ward", "tasks": {"y": "regression"}, "split": Split(test=0.0), "transform": {"pay": "rank"}}
    return Federation.from_table(table, **{**usual, **options})


def test_ranks_are_those_of_all_rows():
    """Against scipy's ranks of all rows in one place, ties at their middle, and scikit-learn's of values without ties."""
    table = incomes(1500)
    study = federation(table, scaling="none").prepare(0)
    together = (rankdata(table["pay"], method="average") - 0.5) / len(table)
    for ward, rows in table.groupby("ward"):
        found = study.encode(ward, rows)[:, 0]
        off = np.abs(found - together[rows.index])
        assert off.mean() < 0.005
        assert np.quantile(off, 0.99) < 0.02  # the few between nothing and the least group are drawn towards nothing
    paid = table[table["pay"] > 0]
    theirs = QuantileTransformer(n_quantiles=300).fit_transform(paid[["pay"]].to_numpy())[:, 0]
    ours = federation(paid, scaling="none").prepare(0).encode("a", paid)[:, 0]
    assert np.abs(ours - theirs).max() < 0.02


def test_ranks_are_standardised_without_further_moments():
    table = incomes()
    study = federation(table).prepare(0)
    x = np.concatenate([parts.train.x for parts in study.clients.values()])
    assert study.encoders["a"].names == ("pay, rank", "age")
    assert np.abs(x.mean(axis=0)).max() < 0.02
    assert np.abs(x.std(axis=0) - 1).max() < 0.02
    far = pd.DataFrame({"pay": [-1e9, 0.0, 1e9, np.nan], "age": 50.0})
    coded = study.encode("a", far)[:, 0]
    assert coded[0] <= coded[1] < coded[2] < 1.8  # the last rank, not a thousand standard deviations
    assert coded[3] == 0.0


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.integers(1, 12))
def test_no_number_stands_for_few_rows(values, least):
    """Groups of neighbours, each large enough, whose means rise and lie among its values; nothing is lost."""
    sketch = Sketch.of(np.array(values), least)
    if len(values) < least:
        assert sketch is None
        return
    assert sketch is not None
    assert sketch.count.min() >= least
    assert sketch.count.sum() == len(values)
    assert len(sketch.count) <= MOST_GROUPS
    assert (np.diff(sketch.mean) > 0).all()
    ordered, start = np.sort(values), 0
    for mean, count in zip(sketch.mean, sketch.count, strict=True):
        group = ordered[start : start + count]
        assert group[0] <= mean <= group[-1]
        start += count


@given(st.lists(st.lists(NUMBERS, min_size=5, max_size=80), min_size=1, max_size=5), st.lists(NUMBERS, max_size=20))
def test_ranks_rise_and_are_undone(clients, new):
    sketches = [Sketch.of(np.array(values), 5) for values in clients]
    ranks = Ranks.pool([sketch for sketch in sketches if sketch is not None])
    assert len(ranks.values) <= MOST_KNOTS
    assert 0 < ranks.ranks[0] <= ranks.ranks[-1] < 1
    found = ranks.of(np.sort(np.array(new)))
    assert (np.diff(found) >= 0).all()
    assert np.isfinite(found).all()
    knots = np.array(ranks.ranks)
    assert np.allclose(ranks.of(ranks.undone(knots)), knots, atol=1e-6)


def test_one_client_cannot_choose_the_ranks():
    """A client that claims a billion rows counts for ten times as many as is usual."""
    honest = [Sketch(np.array([1.0, 2.0]), np.array([10, 10])) for _ in range(40)]
    liar = Sketch(np.array([1e6, 2e6]), np.array([10**9 // 2, 10**9 // 2]))
    assert Ranks.pool([*honest, liar]).of(np.array([2.0])) == pytest.approx((400 + 200) / 1000)


def test_what_is_sent():
    table = incomes(60)
    fed = federation(table, split=Split(test=0.2))
    limits = Limits(min_rows=10, min_count=7)
    raw = fed.raw["a"]
    division = divide(fed.tasks, raw, fed.split, seed=0, client="a")
    note = json.loads(json.dumps(describe(fed.tasks, raw, division, limits=limits).to_dict()))
    reported = note["ranks"]["pay"]
    assert note["kinds"] == ["rank", "number"]
    assert min(reported["count"]) >= 7
    assert sum(reported["count"]) == len(division.train)
    assert note["moments"]["count"][0] == note["moments"]["mean"][0] == 0
    assert not {*reported["mean"]} & {*table["pay"][table["pay"] > 0]}
    few = describe(fed.tasks, raw, division, limits=Limits(min_rows=len(division.train) + 1))
    assert few.is_silent
    assert few.ranks == {}


def test_a_study_is_stored_with_its_ranks_and_late_joining_clients_use_them():
    table = incomes()
    study = federation(table).prepare(0)
    again = PreparedFederation.from_saved(json.loads(json.dumps(study.to_dict())), study.arrays())
    rows = table[table["ward"] == "b"]
    assert np.array_equal(again.encode("b", rows), study.clients["b"].train.x)
    assert np.array_equal(again.admit("d", rows)[0].x, study.clients["b"].train.x)
    assert np.array_equal(again.encode("b", rows[["pay", "age"]].to_numpy()), study.clients["b"].train.x)


def test_units_of_each_client():
    """Ranks of the federation, standardised by each client's own rows."""
    study = federation(incomes(), scaling="local").prepare(0)
    for parts in study.clients.values():
        assert parts.train.x.mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-9)
        assert parts.train.x.std(axis=0) == pytest.approx([1.0, 1.0])


def test_too_few_values_to_rank():
    table = incomes(12).assign(ward=[*"abcdef"] * 2)
    with pytest.raises(DataError) as caught:
        federation(table).prepare(0)
    assert str(caught.value) == (
        "transform: no client has the 5 training values of column 'pay' that its ranks are made of; "
        "take its logarithm, or leave it as it is."
    )
