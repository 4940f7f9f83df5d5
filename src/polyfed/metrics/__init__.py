"""How good predictions are: errors, calibration, coverage, and whether out-of-distribution rows are noticed.

`score` has all the metrics of a kind of task, `pooled` makes one line of the scores of many clients; each metric
is also a plain function of arrays.

>>> accuracy(["a", "b", "b"], ["a", "b", "a"])
0.6667
>>> is_better("rmse", 0.9, 0.8), is_score("proportion", "deviance")
(False, True)
"""

from polyfed.metrics.classes import (
    CalibrationBins,
    accuracy,
    auroc,
    balanced_accuracy,
    brier,
    calibration_bins,
    class_auroc,
    ece,
    fpr95,
    nll,
)
from polyfed.metrics.regression import binomial_deviance, coverage, mae, mse, nlpd, poisson_deviance, r2, rmse, width
from polyfed.metrics.scores import (
    BASELINE,
    LEVEL,
    METRICS,
    SHARES,
    SKILL,
    Guess,
    Pooled,
    advice,
    badness,
    is_better,
    is_score,
    pooled,
    score,
)

__all__ = [
    "BASELINE",
    "LEVEL",
    "METRICS",
    "SHARES",
    "SKILL",
    "CalibrationBins",
    "Guess",
    "Pooled",
    "accuracy",
    "advice",
    "auroc",
    "badness",
    "balanced_accuracy",
    "binomial_deviance",
    "brier",
    "calibration_bins",
    "class_auroc",
    "coverage",
    "ece",
    "fpr95",
    "is_better",
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
