"""The first guess of `polyfed init`, on tables with the traits of real ones: clients, kinds, ids, give-aways."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyfed.experiments.guessing import guess_columns, kind_of, remarks

N = 1200
RNG = np.random.default_rng(1)


def pick(*values):
    return RNG.choice(np.array(values, dtype=object), N)


def codes(n, start=1):
    return RNG.integers(start, start + n, N)


SICK = RNG.random(N) < 0.06
SCHOOL = codes(40, 2020)
TABLES = {
    "tests of clinics": (
        {
            "gender": pick("male", "female"),
            "day": codes(100),
            "clinic_name": pick(*(f"clinic {i}" for i in range(27))),
            "result": np.where(SICK, "positive", "negative"),
            "demo_group": pick("patient", "staff", "other"),
            "ct_result": np.where(SICK, 20 + 3 * RNG.standard_normal(N), 45.0),
            "payor_group": np.where(RNG.random(N) < 0.47, None, pick("a", "b", "c")),
            "patient_class": np.where(RNG.random(N) < 0.47, None, pick("in", "out", "none")),
            "rec_ver_tat": np.abs(RNG.standard_t(1.5, N)) + 3,
        },
        {"clinic_name": "client", "result": "binary", "ct_result": "drop", "rec_ver_tat": "robust"},
    ),
    "pupils": (
        {
            "schoolid": SCHOOL,
            "pupil_id": np.arange(N) // 3,
            "grade": codes(6, 0),
            "math": RNG.standard_normal(N),
            "retained": (RNG.random(N) < 0.05).astype(int),
            "size": SCHOOL * 7 % 300,
        },
        {"schoolid": "client", "pupil_id": "drop", "math": "regression", "retained": "binary"},
    ),
    "stops": (
        {
            "date": [f"2017-{1 + i % 12:02}-{1 + i % 28:02}T06:{i % 60:02}:{i * 7 % 60:02}Z" for i in range(N)],
            "problem": pick("suspicious", "traffic"),
            "personSearch": pick("NO", "YES"),
            "citationIssued": np.where(RNG.random(N) < 0.6, None, pick("NO", "YES")),
            "lat": 44 + RNG.random(N),
            "policePrecinct": codes(5),
            "neighborhood": pick(*(f"n{i}" for i in range(80))),
        },
        {"neighborhood": "client", "problem": "binary", "personSearch": "binary"},
    ),
    "visits": (
        {
            "visits": RNG.poisson(3.0, N) * RNG.poisson(2.0, N),
            "hospital": RNG.poisson(0.3, N),
            "health": pick("poor", "average", "excellent"),
            "region": pick("west", "east", "south", "other"),
            "school": codes(19, 0),
            "income": np.exp(RNG.standard_normal(N)),
            "insurance": pick("yes", "no"),
        },
        {"region": "client", "visits": "count", "health": "multiclass", "insurance": "binary"},
    ),
    "ticks": (
        {
            "TICKS": RNG.negative_binomial(1, 0.2, N),
            "BROOD": 500 + np.arange(N) // 3,
            "HEIGHT": (300 + np.arange(N) // 12).astype(float),
            "YEAR": codes(3, 95),
            "LOCATION": 10 + np.arange(N) // 6,
        },
        {"LOCATION": "client", "TICKS": "count"},
    ),
    "penguins": (
        {
            "species": pick("Adelie", "Gentoo", "Chinstrap"),
            "island": pick("Biscoe", "Dream", "Torgersen"),
            "bill_length_mm": RNG.normal(44, 5, N),
            "body_mass_g": RNG.normal(4200, 800, N).round(-1),
            "sex": pick("male", "female"),
            "year": codes(3, 2007),
        },
        {"island": "client", "species": "multiclass", "body_mass_g": "regression"},
    ),
    "phones": (
        {
            "row_id": np.arange(N),
            "device": pick("ios", "android"),
            "client": pick(*"abcdefgh"),
            "steps": RNG.normal(8000, 2000, N),
            "remark": [f"text {i}" for i in range(N)],
        },
        {"row_id": "drop", "client": "client", "steps": "regression", "remark": "drop"},
    ),
    "nothing but numbers": (
        {"a": RNG.standard_normal(N), "b": RNG.standard_normal(N), "c": RNG.standard_normal(N)},
        {"c": "regression"},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_first_guess(name):
    columns, wanted = TABLES[name]
    found = {guess.column: guess.role for guess in guess_columns(pd.DataFrame(columns))}
    assert found == dict.fromkeys(columns, "feature") | wanted


def test_remarks():
    few = pd.DataFrame(
        {"user": np.repeat(np.arange(400), 3), "income": np.exp(3 * RNG.standard_normal(N)), "y": codes(500)}
    )
    assert remarks(few, guess_columns(few)) == [
        "Half of the 400 clients have 3 rows or fewer: little to learn from and to measure on",
        "Skewed inputs, whose logarithm or rank may say more (--transform auto lets held-out rows choose): income",
    ]
    none = pd.DataFrame(TABLES["nothing but numbers"][0])
    assert remarks(none, guess_columns(none)) == [
        "No column says whose row it is, as far as can be seen: name one as client"
    ]
    assert remarks(none, guess_columns(none, in_folder=True), in_folder=True) == []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["yes", "no", None, "yes"], "binary"),
        ([0, 1, 1, 0], "binary"),
        (["a", "b", "c"], "multiclass"),
        ([0, 0, 1, 700, 3], "count"),
        ([1, 2, 3, 4], "count"),
        ([60.5, 70.1, 80.0], "regression"),
        ([-1, 0, 1, 2], "regression"),
        ([100, 200, 300], "regression"),
    ],
)
def test_the_kind_of_a_target_is_guessed(values, kind):
    assert kind_of(pd.Series(values))[0] == kind


def tails(name, n):
    rng = np.random.default_rng(n)
    return {
        "normal": lambda: rng.standard_normal(n),
        "uniform": lambda: rng.uniform(-1, 1, n),
        "two heaps": lambda: rng.standard_normal(n) + 8 * rng.integers(0, 2, n),
        "student": lambda: rng.standard_t(2.5, n),
        "slips of the pen": lambda: np.where(np.arange(n) < n // 50, 700.0, 60 + 10 * rng.standard_normal(n)),
        "incomes": lambda: np.exp(rng.standard_normal(n)),
        "mostly one value": lambda: np.where(np.arange(n) < 0.7 * n, 1.5, rng.standard_normal(n)),
    }[name]()


@pytest.mark.parametrize("n", [100, 5000])
@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("normal", "regression", "numbers"),
        ("uniform", "regression", "numbers"),
        ("two heaps", "regression", "numbers"),
        ("mostly one value", "regression", "numbers"),
        ("student", "robust", "of them far from the rest"),
        ("slips of the pen", "robust", "of them far from the rest"),
        ("incomes", "regression", "skewed: their logarithm may be easier to predict (--transform auto)"),
    ],
)
def test_heavy_tails_suggest_robust_regression(name, kind, why, n):
    guessed, reason = kind_of(pd.Series(tails(name, n), name="y"))
    assert guessed == kind
    assert reason.endswith(why)


def test_roles_of_columns_are_guessed():
    frame = pd.DataFrame(
        {
            "row_id": range(40),
            "hospital": ["basel", "bern"] * 20,
            "age": [30.5 + i for i in range(40)],
            "empty": [None] * 40,
            "remark": [f"text {i}" for i in range(40)],
            "diagnosis": ["a", "b", "c", "d"] * 10,
            "visits": [i % 4 for i in range(40)],
        }
    )
    roles = {guess.column: guess.role for guess in guess_columns(frame)}
    assert roles == {
        "row_id": "drop", "hospital": "client", "age": "feature", "empty": "drop", "remark": "drop",
        "diagnosis": "multiclass", "visits": "count",
    }  # fmt: skip
