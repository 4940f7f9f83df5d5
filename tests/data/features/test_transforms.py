"""Logarithms of inputs and of targets: what they are, that new rows have the same, and what is rejected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation, Split
from polyfed.errors import ConfigError, DataError

TABLE = pd.DataFrame(
    {
        "ward": ["a", "b"] * 3,
        "income": [0.0, 10.0, np.nan, 1e6, -5.0, 2.0],
        "sex": [*"mfmfmf"],
        "pay": [1, 2, 3, 4, 5, 6],
    }
)


def federation(table=TABLE, **options):
    usual = {"client": "ward", "tasks": {"pay": "regression"}, "split": Split(test=0.0), "scaling": "none"}
    return Federation.from_table(table, **{**usual, **options})


def test_an_input_and_new_rows_of_it():
    study = federation(transform={"income": "log"}).prepare(0)
    assert study.encoders["b"].names == ("income, log", "income is missing", "sex=f", "sex=m")
    assert study.clients["b"].train.x[:, 0].tolist() == pytest.approx([np.log(11), np.log(1e6 + 1), np.log(3)])
    assert study.clients["a"].train.x[:, 0].tolist() == pytest.approx([0.0, 0.0, -np.log(6)])
    mine = TABLE[TABLE["ward"] == "b"]
    assert np.array_equal(study.encode("b", mine), study.clients["b"].train.x)
    admitted, _ = study.admit("c", mine)
    assert np.array_equal(admitted.x, study.clients["b"].train.x)
    assert np.array_equal(study.encode("b", mine[["income", "sex"]].to_numpy()), study.clients["b"].train.x)


def test_a_target_can_be_a_logarithm_and_its_column_is_no_input():
    fed = federation(derive={"log_pay": "log(pay)"}, tasks={"log_pay": "regression"})
    assert fed.raw["a"].features.names == ("income", "sex")
    assert fed.raw["a"].labels["log_pay"].values.tolist() == pytest.approx(np.log([1, 3, 5]).tolist())
    spaced = TABLE.rename(columns={"pay": "my pay"})
    fed = federation(spaced, derive={"y": "log1p(`my pay`)"}, tasks={"y": "regression"})
    assert fed.raw["a"].labels["y"].values.tolist() == pytest.approx(np.log([2, 4, 6]).tolist())


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"transform": {"income": "lgo"}},
            ConfigError,
            "table: transform 'lgo' of column 'income' is not known; did you mean 'log'? known are 'log', 'rank'.",
        ),
        (
            {"transform": {"incom": "log"}},
            ConfigError,
            "table: column 'incom' is transformed, but is no input; did you mean 'income'? known are 'income', 'sex'; "
            "the logarithm of a target is derived (log_y = log(y)).",
        ),
        (
            {"transform": {"pay": "log"}},
            ConfigError,
            "table: column 'pay' is transformed, but is no input; known are 'income', 'sex'; "
            "the logarithm of a target is derived (log_y = log(y)).",
        ),
        (
            {"transform": {"income": "auto"}},
            ConfigError,
            "table: transform 'auto' is not for data of several machines or from Python; "
            "let polyfed run choose it where there are rows to choose by, and name what it chose.",
        ),
        (
            {"transform": {"sex": "log"}},
            DataError,
            "table: column 'sex' is transformed, but holds no numbers; leave it as it is.",
        ),
        (
            {"derive": {"y": "log(sex)"}, "tasks": {"y": "regression"}},
            DataError,
            "table, derived column 'y': column 'sex' holds no numbers, and has no logarithm; take it of a column of numbers.",
        ),
        (
            {"derive": {"y": "log(income)"}, "tasks": {"y": "regression"}},
            DataError,
            "row 0, column 'income': 0.0 has no log; correct it, or leave it empty.",
        ),
        (
            {"derive": {"y": "log(visits)"}, "tasks": {"y": "regression"}, "table": TABLE.assign(visits=range(6))},
            DataError,
            "row 0, column 'visits': 0 has no log; use log1p(visits).",
        ),
        (
            {"derive": {"y": "exp(pay)"}, "tasks": {"y": "regression"}},
            ConfigError,
            "derived column 'y': 'exp(pay)' is not a comparison; "
            "write for example num > 0, or `my column` == 'yes', or log(income).",
        ),
    ],
)
def test_what_has_no_logarithm(options, kind, text):
    with pytest.raises(kind) as caught:
        federation(**options)
    assert str(caught.value) == text
