"""`--transform auto`: the scale that held-out rows choose, that test rows have no say, and what is rejected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm

from polyfed.data import Federation
from polyfed.engine import simulate
from polyfed.errors import ConfigError
from polyfed.experiments import scales
from polyfed.experiments.building import build_federation
from polyfed.experiments.guessing import is_skewed, is_skewed_target
from polyfed.experiments.reading import check
from polyfed.experiments.scales import settled


def table(n=240, seed=0):
    """y follows the logarithm of `income` and the rank of `claims`; `pay` is log-normal given x; `age` is not skewed."""
    rng = np.random.default_rng(seed)
    income = 100 * np.exp(2 * rng.standard_normal(n))
    claims = np.exp(4 * rng.uniform(size=n) ** 3)
    x = rng.standard_normal(n)
    return pd.DataFrame(
        {
            "ward": rng.choice([*"abc"], n),
            "income": income,
            "claims": claims,
            "age": 50 + 10 * x,
            "y": np.log(income) + 0.1 * rng.standard_normal(n),
            "pay": np.exp(2 * x + 0.1 * rng.standard_normal(n)),
        }
    )


def config(tmp_path, frame=None, tasks=("y",), transform="auto", **data):
    frame = table() if frame is None else frame
    frame.to_csv(tmp_path / "t.csv", index=False)
    given = {"source": str(tmp_path / "t.csv"), "client": "ward", "transform": transform, "test": 0.3, **data}
    given["tasks"] = {"regression": list(tasks)}
    return check({"data": given, "run": {"rounds": 3}, "method": {"name": "local"}}, "t.toml")


def test_skewed_columns_are_found_and_the_right_scale_is_chosen(tmp_path):
    drop = ["pay"]
    found, tried = settled(config(tmp_path, drop=drop), "t.toml")
    by_column = {scale.column: scale for scale in tried}
    assert by_column["income"].chosen == "log"
    assert set(by_column["income"].losses) == {"none", "log", "rank"}
    assert by_column["income"].losses["log"] < by_column["income"].losses["none"] - 0.5
    assert "age" not in by_column
    assert found.data.transform["income"] == "log"
    assert settled(found, "t.toml") == (found, [])  # nothing is left to choose


def test_a_target_whose_logarithm_is_easier_is_derived(tmp_path):
    found, tried = settled(config(tmp_path, tasks=("pay",), drop=["income", "claims", "y"]), "t.toml")
    assert [(scale.column, scale.chosen, set(scale.losses)) for scale in tried] == [("pay", "log", {"none", "log"})]
    assert [task.name for task in found.data.tasks] == ["log_pay"]
    assert found.data.derive == {"log_pay": "log(`pay`)"}
    assert found.data.transform == {}


def test_losses_of_a_logarithm_are_in_units_of_the_target(tmp_path):
    """The loss with the logarithm is that of scipy's log-normal density of the target, by the predictions of such a run."""
    settings = config(tmp_path, tasks=("pay",), drop=["income", "claims", "y"], transform={})
    federation = scales._few(build_federation(settings.data, "t.toml"), 0)
    found = scales._loss(settings, "t.toml", federation, {"pay": "log"}, {})
    logged = {
        name: replace(raw, labels={"pay": replace(raw.labels["pay"], values=np.log(raw.labels["pay"].values))})
        for name, raw in federation.raw.items()
    }
    run = simulate("local", replace(federation, raw=logged), rounds=3, seed=0)
    losses = []
    for name, parts in run.prepared.clients.items():
        held_out = parts.validation
        at, coded = held_out.labels["pay"]
        pay = np.exp(held_out.codecs["pay"].decode(coded))
        predicted = run.members.predictor(run.federation_state, name)(held_out.x[at])["pay"]
        losses.append(-lognorm(s=predicted.std, scale=np.exp(predicted.mean)).logpdf(pay).mean())
    assert found == pytest.approx(np.mean(losses), rel=1e-9)


def test_columns_that_are_named_are_tried_and_others_stay(tmp_path):
    asked = {"age": "auto", "claims": "log"}
    found, tried = settled(config(tmp_path, transform=asked, drop=["pay", "income"]), "t.toml")
    assert [scale.column for scale in tried] == ["age"]
    assert found.data.transform.get("claims") == "log"
    assert found.data.transform.get("age", "none") == tried[0].chosen


def test_rows_for_testing_have_no_say(tmp_path):
    """Whatever is in the rows that will be tested on, the same losses are seen."""
    frame = table()
    whole = config(tmp_path, frame, drop=["pay", "claims"])
    study_rows = Federation.from_table(frame, client="ward", tasks={"y": "regression"}, features=["age"])
    split = whole.data.split()
    _, before = settled(whole, "t.toml")
    corrupted = frame.copy()
    for ward, raw in study_rows.raw.items():
        own = np.flatnonzero(frame["ward"] == ward)
        division = scales.divide(study_rows.tasks, raw, split, seed=0, client=ward)
        corrupted.loc[own[division.test], ["y", "income"]] = [1e6, 1e-9]
    assert (corrupted != frame).any(axis=None)
    _, after = settled(config(tmp_path, corrupted, drop=["pay", "claims"]), "t.toml")
    assert before == after


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (
            {"ages": "auto"},
            "t.toml: column 'ages' has no scale to choose: it is neither an input nor a target that is a number; "
            "did you mean 'age'? known are 'income', 'claims', 'age', 'pay', 'y'.",
        ),
        ({"y": "auto"}, "t.toml: target 'y' has values that are not above 0, and no logarithm; leave it out."),
    ],
)
def test_what_cannot_be_chosen(tmp_path, transform, text):
    with pytest.raises(ConfigError) as caught:
        settled(config(tmp_path, transform=transform), "t.toml")
    assert str(caught.value) == text


def test_what_is_skewed():
    rng = np.random.default_rng(1)
    heavy = np.exp(2 * rng.standard_normal(500))
    assert is_skewed(np.append(heavy, np.nan))
    assert not is_skewed(heavy[:20])  # too few to say
    assert not is_skewed(heavy - 1)  # some are negative
    assert is_skewed_target(heavy)
    assert not is_skewed_target(np.append(heavy, 0.0))
    assert not is_skewed_target(rng.standard_normal(500) + 10)
