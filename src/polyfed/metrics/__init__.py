"""How good predictions are: errors, calibration, coverage, and whether foreign rows are noticed.

`score` has all the metrics of a kind of task, `pooled` makes one line of the scores of many clients; each metric
is also a plain function of arrays.

>>> accuracy(["a", "b", "b"], ["a", "b", "a"])
0.6667
>>> list(SCORES["proportion"]), HEADLINE["proportion"], LOSS["proportion"]
(['rmse', 'r2', 'nlpd', 'deviance'], 'rmse', 'nlpd')
"""

from polyfed.metrics.classes import (
    CalibrationBins,
    accuracy,
    balanced_accuracy,
    brier,
    calibration_bins,
    class_auroc,
    ece,
    nll,
)
from polyfed.metrics.counts import binomial_deviance, poisson_deviance
from polyfed.metrics.guessing import BASELINE, SKILL, Guess
from polyfed.metrics.ood import auroc, fpr95
from polyfed.metrics.pooling import Pooled, pooled
from polyfed.metrics.regression import coverage, mae, mse, nlpd, r2, rmse, width
from polyfed.metrics.scores import HEADLINE, LEVEL, LOSS, LOWER_IS_BETTER, SCORES, is_score, score

__all__ = [
    "BASELINE",
    "HEADLINE",
    "LEVEL",
    "LOSS",
    "LOWER_IS_BETTER",
    "SCORES",
    "SKILL",
    "CalibrationBins",
    "Guess",
    "Pooled",
    "accuracy",
    "auroc",
    "balanced_accuracy",
    "binomial_deviance",
    "brier",
    "calibration_bins",
    "class_auroc",
    "coverage",
    "ece",
    "fpr95",
    "is_score",
    "mae",
    "mse",
    "nll",
    "nlpd",
    "poisson_deviance",
    "pooled",
    "r2",
    "rmse",
    "score",
    "width",
]
