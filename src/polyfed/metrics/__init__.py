"""How good predictions are: errors, calibration, coverage, and whether foreign rows are noticed.

`score` has all the metrics of a kind of task, `pooled` makes one line of the scores of many clients; each metric
is also a plain function of arrays.

>>> accuracy(["a", "b", "b"], ["a", "b", "a"])
0.6667
>>> list(SCORES["proportion"]), HEADLINE["proportion"], LOSS["proportion"]
(['rmse', 'nlpd', 'deviance'], 'rmse', 'nlpd')
"""

from polyfed.metrics.classes import CalibrationBins, accuracy, balanced_accuracy, brier, calibration_bins, ece, nll
from polyfed.metrics.counts import binomial_deviance, poisson_deviance
from polyfed.metrics.ood import auroc, fpr95
from polyfed.metrics.pooling import Pooled, pooled
from polyfed.metrics.regression import coverage, mae, mse, nlpd, rmse, width
from polyfed.metrics.scores import HEADLINE, LEVEL, LOSS, LOWER_IS_BETTER, SCORES, score

__all__ = [
    "HEADLINE",
    "LEVEL",
    "LOSS",
    "LOWER_IS_BETTER",
    "SCORES",
    "CalibrationBins",
    "Pooled",
    "accuracy",
    "auroc",
    "balanced_accuracy",
    "binomial_deviance",
    "brier",
    "calibration_bins",
    "coverage",
    "ece",
    "fpr95",
    "mae",
    "mse",
    "nll",
    "nlpd",
    "poisson_deviance",
    "pooled",
    "rmse",
    "score",
    "width",
]
