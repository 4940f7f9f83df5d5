"""Columns derived by a comparison."""

from __future__ import annotations

import pandas as pd
import pytest

from polyfed.data.tables.derived import Comparison
from polyfed.data.tables.files import Table
from polyfed.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("num > 0", [False, True, True]),
        ("num>=2", [False, False, True]),
        ("num == 1", [False, True, False]),
        ("num != 1.0", [True, False, True]),
        ("num < 1e0", [True, False, False]),
        ("num <= -1", [False, False, False]),
        ("word == 'a b'", [True, False, False]),
        ('word != "c"', [True, True, False]),
        ("`odd > name` > 1", [False, True, True]),
    ],
)
def test_a_comparison_of_a_column(text, expected):
    frame = pd.DataFrame({"num": [0, 1, 2], "word": ["a b", "b", "c"], "odd > name": [1, 2, 3]})
    assert Comparison.parse("new", text).of(Table(frame, "table", str)).tolist() == expected


def test_a_row_without_a_value_stays_without():
    frame = pd.DataFrame({"num": [0.0, None, 2.0]})
    assert Comparison.parse("new", "num > 0").of(Table(frame, "table", str)).tolist() == [False, None, True]


@pytest.mark.parametrize(
    "text",
    ["num", "num >", "> 0", "num > zero", "num > 0 and num < 2", "num = 0", "num > inf", "__import__('os') > 0 > 1", 3],
)
def test_what_is_no_comparison_is_rejected(text):
    with pytest.raises(ConfigError, match="is not a comparison"):
        Comparison.parse("new", text)
