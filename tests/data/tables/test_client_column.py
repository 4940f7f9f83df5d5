"""Whose row it is: the likely columns, the impossible ones, and identifiers of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, Split
from polyfed.data.tables.client_column import likely_clients
from polyfed.data.tables.columns import why_identifier
from polyfed.errors import DataError

N = 600
RNG = np.random.default_rng(0)
PULSE = {"pulse": "regression"}


def texts(n, word="t"):
    return [f"{word}{i}" for i in RNG.integers(0, n, N)]


def numbers(n, start=0):
    return RNG.integers(start, start + n, N)


def first(**columns):
    found = likely_clients(pd.DataFrame({**columns, "measured": RNG.standard_normal(N)}))
    return found[0].column if found else None


def test_the_likely_client():
    assert first(device=texts(2), client=texts(5)) == "client"
    assert first(device=texts(2)) == "device"
    # counts and years of schooling are named like places, and a text is none of them
    assert first(hospital=RNG.poisson(0.5, N), school=numbers(19), region=texts(4)) == "region"
    assert first(gender=texts(2), clinic_name=texts(27), demo_group=texts(5)) == "clinic_name"
    assert first(schoolid=numbers(60, 2020), grade=numbers(6)) == "schoolid"
    assert first(policePrecinct=numbers(5, 1), neighborhood=texts(80), race=texts(8)) == "neighborhood"
    assert first(district=numbers(60, 1), livch=texts(4)) == "district"
    assert first(sex=texts(2), colour=texts(3), level=numbers(4)) is None


def test_a_client_is_known_by_what_does_not_differ_within_it():
    code = RNG.integers(0, 40, N)
    table = {"colour": texts(4), "code": [f"c{i}" for i in code], "beds": 100 + 7 * (code // 2)}
    assert first(**table) == "code"


def test_what_cannot_be_a_client():
    assert first(client=[f"t{i}" for i in range(N)]) is None
    assert first(client=[None] * 20 + texts(5)[20:]) is None
    assert first(client=[None] * 20 + texts(5)[20:], site=texts(5)) == "site"
    assert first(region=RNG.standard_normal(N).round(1)) is None


def test_few_rows_of_each_are_told():
    (one,) = likely_clients(pd.DataFrame({"location": np.repeat(np.arange(200), 3), "ticks": RNG.poisson(4.0, N)}))[:1]
    assert one.why == "named like one, 200 different values, few rows of each (3 in the middle)"


# A wrong one


def test_clients_of_one_row_are_rejected_with_the_likely_column():
    table = pd.DataFrame({"ward": texts(4, "w"), "income": np.arange(N) * 1.5, "pulse": RNG.standard_normal(N)})
    with pytest.raises(DataError) as caught:
        Federation.from_table(table, client="income", tasks=PULSE)
    assert str(caught.value) == (
        "table: column 'income' names 600 clients, 600 of which have a single row, so that there is nothing to measure on; "
        "take 'ward' (named like one, 4 different values), or keep no test rows (test = 0)."
    )
    assert len(Federation.from_table(table, client="income", tasks=PULSE, split=Split(test=0.0))) == N
    with pytest.raises(DataError, match="take a column whose values repeat, or keep no test rows"):
        Federation.from_table(table[["income", "pulse"]].assign(age=1.5), client="income", tasks=PULSE)


def test_a_few_small_clients_are_no_mistake():
    names = np.concatenate([np.arange(100), np.repeat(np.arange(100, 250), 2)])
    table = pd.DataFrame({"user": names, "age": 1.0, "pulse": np.arange(400.0)})
    assert len(Federation.from_table(table, client="user", tasks=PULSE)) == 250


# Identifiers


@pytest.mark.parametrize(
    ("name", "values", "is_one"),
    [
        ("name", [f"Patient {i}" for i in range(40)], True),
        ("name", [f"Patient {i}" for i in range(38)] + ["Patient 0"] * 2, True),
        ("name", [f"Patient {i % 30}" for i in range(40)], False),
        ("name", [f"Patient {i}" for i in range(10)], False),
        ("row_id", range(40), True),
        ("PatientID", [float(i) for i in range(40)], True),
        ("income", range(40), False),
        ("id", np.linspace(0, 1, 40), False),
        ("seen", [f"2024-01-{i:02}" for i in range(1, 31)], False),
        ("id", [[1]] * 40, False),
    ],
)
def test_identifiers(name, values, is_one):
    assert (why_identifier(pd.Series(values, name=name)) is not None) == is_one


def test_identifiers_are_left_out_and_it_is_said(tmp_path):
    table = pd.DataFrame(
        {
            "ward": ["a", "b"] * 20,
            "age": np.arange(40.0),
            "name": [f"Patient {i}" for i in range(40)],
            "pulse": np.arange(40.0),
        }
    )
    with pytest.warns(UserWarning, match=r"column 'name' is left out \(a text that is different in every row\)"):
        fed = Federation.from_table(table, client="ward", tasks=PULSE)
    assert fed.raw["a"].features.names == ("age",)
    listed = Federation.from_table(table, client="ward", tasks=PULSE, features=["age", "name"])
    assert listed.raw["a"].features.names == ("age", "name")
    for ward, rows in table.groupby("ward"):
        rows.drop(columns="ward").to_csv(tmp_path / f"{ward}.csv", index=False)
    with pytest.warns(UserWarning, match="column 'name' is left out"):
        assert Federation.from_table(tmp_path, tasks=PULSE).raw["b"].features.names == ("age",)


def test_texts_of_many_levels_are_grouped_and_it_is_said():
    streets = [f"s{i % 150}" for i in range(450)]
    table = pd.DataFrame({"ward": ["a"] * 450, "street": streets, "pulse": np.arange(450.0)})
    with pytest.warns(
        UserWarning, match="column 'street' has 150 different texts; 100 of them are kept, all others are 'other'"
    ):
        study = Federation.from_table(table, client="ward", tasks=PULSE).prepare(0)
    assert len(study.encoders["a"].names) == 101
    assert study.clients["a"].train.x.sum(axis=1).tolist() == [1.0] * 360
