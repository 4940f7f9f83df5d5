"""Dates as numbers, against the standard library's calendar."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfed.data import Federation, Split
from polyfed.data.features.dates import are_dates, date_columns
from polyfed.errors import DataError

DAY = datetime(2024, 2, 29, 18, 0)


def columns(values, **options):
    return date_columns(pd.Series(values), "seen", "row {}".format, **options)


@given(st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)))
def test_the_numbers_are_those_of_the_calendar(moment):
    found = {name.removeprefix("seen, "): v[0] for name, v in columns([moment.isoformat()], all_parts=True).items()}
    assert found["days"] == pytest.approx((moment - datetime(2000, 1, 1)) / timedelta(days=1), abs=1e-6)
    assert found["year"] == moment.year
    length = (date(moment.year + 1, 1, 1) - date(moment.year, 1, 1)).days
    for circle, turn in {
        "year": (moment.timetuple().tm_yday - 1) / length,
        "week": moment.weekday() / 7,
        "day": (moment - datetime(moment.year, moment.month, moment.day)) / timedelta(days=1),
    }.items():
        angle = 2 * math.pi * turn
        assert found[f"{circle} sin"] == pytest.approx(math.sin(angle), abs=1e-6)
        assert found[f"{circle} cos"] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize(
    "written",
    [
        "2024-02-29 18:00", "2024-02-29T18:00:00Z", "2024-02-29T18:00:00.000+05:30", "29.2.2024 18:00", "29.02.24 18:00",
        "2/29/2024 18:00", "29/2/24 18:00:00", DAY, DAY.replace(tzinfo=timezone(timedelta(hours=5))), pd.Timestamp(DAY),
        np.datetime64(DAY),
    ],
)  # fmt: skip
def test_however_it_is_written(written):
    assert are_dates(pd.Series([written, None]))
    assert columns([written])["seen, days"].tolist() == columns([DAY])["seen, days"].tolist()


def test_the_clock_on_the_wall_counts():
    zoned = pd.Series(pd.DatetimeIndex([DAY]).tz_localize("Asia/Tokyo"))
    assert columns(zoned)["seen, days"].tolist() == columns([DAY])["seen, days"].tolist()


def test_what_is_no_date_stays_what_it_is():
    for values in (["2024"], ["12-13"], ["1.2.3"], ["a 2024-01-01"], [20240101], [None], ["2024-01-01", "x"], [True]):
        assert not are_dates(pd.Series(values))


def test_days_without_times_have_no_time_of_day():
    assert len(columns([date(2024, 1, 1)])) == 6
    assert len(columns([DAY])) == len(columns([date(2024, 1, 1)], all_parts=True)) == 8


def test_a_missing_date_is_missing_once():
    found = columns(["2024-01-01", None])
    missing = [name for name, values in found.items() if np.isnan(values[1])]
    assert missing == ["seen, days", "seen, year"]
    assert [values[1] for name, values in found.items() if name not in missing] == [0.0] * 4


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["2023-02-29"], "row 0, column 'seen': '2023-02-29' is no date; "),
        (["2024-01-01", "2024-01-01 24:30"], "row 1, column 'seen': '2024-01-01 24:30' is no date; "),
        (
            ["1/2/2024"],
            "row 0, column 'seen': '1/2/2024' can be read in two ways: it is not said whether the day or the month comes first",
        ),
        (
            ["1/13/2024", "13/1/2024"],
            "row 1, column 'seen': '13/1/2024' can be read in two ways: days and months change places",
        ),
    ],
)
def test_dates_that_are_none(values, text):
    with pytest.raises(DataError) as caught:
        columns(values)
    assert str(caught.value).startswith(text)


def test_new_rows_are_read_as_the_training_rows_were():
    table = pd.DataFrame(
        {
            "ward": ["a"] * 4,
            "seen": ["2024-01-01 06:00", "2024-01-02", "2024-01-03", "2024-01-04"],
            "pulse": [1, 2, 3, 4],
        }
    )
    fed = Federation.from_table(
        table, client="ward", tasks={"pulse": "regression"}, split=Split(test=0.0), scaling="none"
    )
    study = fed.prepare(0)
    assert len(study.encoders["a"].names) == 8
    train = study.clients["a"].train.x
    # without a time among them, with other columns, empty
    assert np.allclose(study.encode("a", table[["pulse", "seen"]].iloc[1:]), train[1:])
    assert study.encode("a", pd.DataFrame({"seen": [None]}))[0, 2:].tolist() == [0.0] * 6
    admitted, _ = study.admit("b", table.drop(columns="ward"))
    assert np.array_equal(admitted.x, train)
    with pytest.raises(DataError, match="'5' is no date"):
        study.encode("a", pd.DataFrame({"seen": [5]}))


def test_durations_are_days():
    table = pd.DataFrame({"ward": ["a"] * 2, "stay": [timedelta(hours=12), timedelta(days=3)], "pulse": [1, 2]})
    fed = Federation.from_table(table, client="ward", tasks={"pulse": "regression"})
    assert fed.raw["a"].features.numbers.tolist() == [[0.5], [3.0]]
