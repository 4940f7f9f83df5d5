"""The parts that settings are made of: TOML text, --set, derived columns, guesses."""

from __future__ import annotations

import tomllib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfed.data.tables.derived import Comparison
from polyfed.errors import ConfigError
from polyfed.experiments.config import Config, RunConfig
from polyfed.experiments.guessing import guess_columns, kind_of
from polyfed.experiments.reading import check, set_value
from polyfed.experiments.toml_text import to_toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(texts, values, max_size=4))
def test_what_is_written_is_read_again(document):
    assert tomllib.loads(to_toml(document)) == document


@pytest.mark.parametrize(
    ("assignment", "document"),
    [
        ("run.rounds=3", {"run": {"rounds": 3}}),
        ("run.sample = 0.5", {"run": {"sample": 0.5}}),
        ("method.name=local", {"method": {"name": "local"}}),
        ("method.per_dimension=true", {"method": {"per_dimension": True}}),
        ('data.tasks.binary=["a", "b"]', {"data": {"tasks": {"binary": ["a", "b"]}}}),
        ("data.derive.old=age == 3", {"data": {"derive": {"old": "age == 3"}}}),
    ],
)
def test_set_takes_toml_and_plain_text(assignment, document):
    made = {}
    set_value(made, assignment)
    assert made == document


def test_the_settings_of_a_run_are_those_of_the_engine():
    from polyfed.engine import Settings

    assert RunConfig().model_dump(exclude={"folder"}) == Settings().to_dict()


def test_settings_that_are_read_again_are_the_same():
    document = {
        "data": {"source": "a.csv", "tasks": {"binary": "sick", "count": ["visits"]}, "derive": {"x": "y > 1"}},
        "method": {"name": "local", "learning_rate": {"kernels": 0.2}},
    }
    config = check(document, "study.toml")
    assert [(task.name, task.kind) for task in config.data.tasks] == [("sick", "binary"), ("visits", "count")]
    assert check(tomllib.loads(to_toml(config.model_dump())), "again") == config
    assert isinstance(config, Config)


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
    assert Comparison.parse("new", text).of(frame, "table").tolist() == expected


def test_a_row_without_a_value_stays_without():
    frame = pd.DataFrame({"num": [0.0, None, 2.0]})
    assert Comparison.parse("new", "num > 0").of(frame, "table").tolist() == [False, None, True]


@pytest.mark.parametrize(
    "text",
    ["num", "num >", "> 0", "num > zero", "num > 0 and num < 2", "num = 0", "num > inf", "__import__('os') > 0 > 1", 3],
)
def test_what_is_no_comparison_is_refused(text):
    with pytest.raises(ConfigError, match="is not a comparison"):
        Comparison.parse("new", text)


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


def test_init_writes_settings_that_run(polyfed, home):
    done = polyfed("init", "hospitals.csv", "--out", "study.toml")
    assert done.code == 0
    assert "named like one, 3 different values" in done.out
    config = tomllib.loads((home / "study.toml").read_text())
    assert config["data"]["client"] == "ward"
    assert config["data"]["tasks"] == {"binary": ["sick"], "count": ["visits"]}
    assert polyfed("run", "study.toml", "--rounds", "1", "--no-report").code == 0
