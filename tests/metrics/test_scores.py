"""The metrics of each kind of task, from predictions and labels as users have them, and the pool of many clients."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from polyfed.errors import ConfigError, DataError
from polyfed.kinds import KINDS
from polyfed.metrics import METRICS, Pooled, badness, is_better, pooled, score
from polyfed.predictions import (
    BinaryPrediction,
    CountPrediction,
    MulticlassPrediction,
    ProportionPrediction,
    RegressionPrediction,
    RobustPrediction,
)

NINETY_FIVE = 1.959963984540054  # sd on each side hold 95% of a normal variable


@pytest.mark.parametrize("name", KINDS)
def test_headline_and_loss_of_a_kind_are_among_its_metrics(name):
    kind = KINDS[name]
    assert {kind.headline, kind.loss} <= set(kind.metrics) <= set(METRICS)


def test_every_metric_says_which_way_is_better():
    better_high = {name for name in [*METRICS, "skill"] if is_better(name, 0.6, 0.5)}
    assert better_high == {"accuracy", "balanced_accuracy", "auroc", "coverage", "r2", "skill"}
    assert is_better("coverage", 0.95, 0.99)  # neither low nor high
    assert badness("coverage", 0.94) == pytest.approx(badness("coverage", 0.96))


def test_regression_by_hand():
    p = RegressionPrediction([0.0, 0.0], [3.0, 0.6], [4.0, 0.8])  # sd 5 and 1
    got = score("regression", p, [1.0, 7.0])
    assert got == pytest.approx(
        {
            "mse": 25.0,
            "rmse": 5.0,
            "r2": 1 - 25 / 9,
            "nlpd": (np.log(2 * np.pi) + np.log(5) + 1 / 50 + 49 / 2) / 2,
            "coverage": 0.5,
            "width": 2 * NINETY_FIVE * 3,
        }
    )
    assert all(type(value) is float for value in got.values())


def test_robust_is_judged_by_its_own_tails():
    y = [0.0, 100.0]
    got = score("robust", RobustPrediction([0.0, 0.0], 0.0, 1.0, 4.0), y)
    assert got["nlpd"] == pytest.approx(-stats.t.logpdf(y, 4).mean())
    assert got["width"] == pytest.approx(2 * stats.t.ppf(0.975, 4))
    assert (got["rmse"], got["coverage"]) == (pytest.approx(np.sqrt(5000)), 0.5)


def test_binary_by_hand():
    p = BinaryPrediction([0.9, 0.6, 0.3, 0.2], ("no", "yes"), np.zeros(4), 1.0)
    got = score("binary", p, pd.Series(["yes", "no", "no", "no"], index=[7, 8, 9, 10]))
    assert got == pytest.approx(
        {
            "accuracy": 0.75,
            "balanced_accuracy": (1 + 2 / 3) / 2,
            "auroc": 1.0,
            "nll": -np.log([0.9, 0.4, 0.7, 0.8]).mean(),
            "brier": (0.01 + 0.36 + 0.09 + 0.04) / 4,
            "ece": (0.1 + 0.6 + 0.3 + 0.2) / 4,  # each in a bin of its own
        }
    )


def test_multiclass_by_hand_and_with_mixed_labels():
    proba = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]]
    p = MulticlassPrediction(proba, ("low", 2, True), np.zeros((2, 3)), 1.0)
    got = score("multiclass", p, ["low", True])
    assert got == pytest.approx(
        {
            "accuracy": 0.5,
            "balanced_accuracy": 0.5,
            "auroc": 1.0,
            "nll": -np.log([0.7, 0.3]).mean(),
            "brier": (0.09 + 0.04 + 0.01 + 0.09 + 0.16 + 0.49) / 2,
            "ece": (0.3 + 0.4) / 2,
        }
    )


def test_count_without_latent_doubt():
    rate, y = np.array([2.0, 50.0]), [2, 90]
    got = score("count", CountPrediction(np.log(rate), 0.0, 4.0), y)
    exact = stats.nbinom(4.0, 4 / (4 + rate))
    lower, upper = exact.ppf(0.025), exact.ppf(0.975)
    assert got == pytest.approx(
        {
            "rmse": np.sqrt(800),
            "r2": 1 - 800 / 44**2,
            "nlpd": -exact.logpmf(y).mean(),
            "deviance": 90 * np.log(90 / 50) - 40,
            "coverage": np.mean((lower <= y) & (y <= upper)),
            "width": np.mean(upper - lower),
        }
    )


def test_proportion_without_latent_doubt():
    rate = np.array([0.5, 0.2])
    got = score("proportion", ProportionPrediction(special.logit(rate), 0.0, rate), [[1, 4], [5, 5]])
    assert got == pytest.approx(
        {
            "rmse": np.sqrt((0.25**2 + 0.8**2) / 2),
            "r2": 1 - (0.25**2 + 0.8**2) / 2 / 0.375**2,
            "nlpd": -(np.log(4 / 16) + 5 * np.log(0.2)) / 2,
            "deviance": np.log(1 / 2) + 3 * np.log(3 / 2) + 5 * np.log(5),
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_labels_give_no_scores(kind):
    assert score(kind, None, []) == {}


def test_the_interval_is_worked_out_once():
    calls = []

    class Slow(RegressionPrediction):
        def interval(self, level=0.95):
            calls.append(level)
            return super().interval(level)

    score("regression", Slow([0.0], [1.0], [1.0]), [0.0])
    assert calls == [0.95]


def test_wrong_labels_are_named():
    with pytest.raises(ConfigError) as caught:
        score("bianry", None, [1])
    assert str(caught.value).startswith("kind 'bianry' is not known; did you mean 'binary'?")
    p = BinaryPrediction([0.9], ("no", "yes"), [1.0], [1.0])
    with pytest.raises(DataError, match=r"label 'yess' is not one of the classes; did you mean 'yes'\?"):
        score("binary", p, ["yess"])
    with pytest.raises(DataError, match="2 labels do not fit 1 predictions"):
        score("binary", p, ["yes", "no"])
    with pytest.raises(DataError, match=r"labels have shape \(1,\); give two columns, successes and trials"):
        score("proportion", ProportionPrediction([0.0], [1.0], [0.5]), [1])


# Many clients


def test_pooled_by_hand():
    got = pooled([({"rmse": 1.0, "nlpd": 2.0}, 10), ({"rmse": 4.0}, 30), ({}, 0), ({"rmse": 7.0}, 40)])
    assert got["rmse"] == pytest.approx((4.0, np.sqrt(6), (10 + 120 + 280) / 80, 3, 80))
    assert got["nlpd"] == Pooled(mean=2.0, std=0.0, weighted_mean=2.0, n_clients=1, n_rows=10)
    assert pooled([]) == pooled([({}, 0)]) == {}


@pytest.mark.parametrize("n", [0, -1, 2.5, float("nan")])
def test_scores_have_rows(n):
    with pytest.raises(DataError) as caught:
        pooled([({}, 0), ({"rmse": 1.0}, n)])
    text = f"entry 1: scores of {n} rows cannot be pooled; give the number of rows that were scored."
    assert str(caught.value) == text


def test_metrics_wait_for_neither_torch_nor_pandas():
    code = "import sys, polyfed.metrics; print(sorted({'torch', 'pandas', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
