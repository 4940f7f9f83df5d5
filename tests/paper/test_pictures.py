"""Charts of points: one for each data set and metric, with everything that was measured in it and nothing cut off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfed.paper.pictures import points
from polyfed.paper.records import Record

ONE = Record(
    "celeba", "50x10", "scheme", "scheme A", "pfed-mul", "Smiling", "accuracy", "", None, 0.85, 0.01, 3, 1.0, 0.9
)


def test_variants_of_all_groups_share_a_chart():
    other = replace(ONE, group="kernel", row="kernel linear", mean=0.7, std=0.05, published=None)
    (chart,) = points([], [ONE, other], [])
    here, published = chart.figures[""]["data"]
    assert here["x"] == published["x"] == ["scheme A", "kernel linear"]
    assert here["y"] == [0.85, 0.7]
    assert here["error_y"]["array"] == [0.01, 0.05]
    assert published["y"] == [0.9, None]
    low, high = chart.figures[""]["layout"]["yaxis"]["range"]
    assert 0.6 < low < 0.65
    assert 0.9 < high < 0.95


def test_cases_are_told_apart_by_colour():
    cases = [replace(ONE, metric="auroc", case=case, published=None) for case in ("masked", "blurred", "other")]
    (chart,) = points([], cases, [])
    assert [trace["name"] for trace in chart.figures[""]["data"]] == ["blurred", "masked", "other"]
    assert len({trace["marker"]["color"] for trace in chart.figures[""]["data"]}) == 3
    assert chart.wide


@pytest.mark.parametrize("mean", [0.85, float("nan")])
def test_one_number_or_none(mean):
    (chart,) = points([], [replace(ONE, mean=mean, std=None, published=None)], [])
    assert "range" not in chart.figures[""]["layout"]["yaxis"]
    assert chart.figures[""]["data"][0]["error_y"]["array"] == [0.0]
