"""How sure a model is of what it expects, apart from the noise of single labels: the band around a curve.

>>> from polyfed.predictions import BinaryPrediction, RegressionPrediction
>>> band(RegressionPrediction([70.0], [2.0], [9.0]))          # the noise is no part of it
(array([[70.]]), array([[66.08]]), array([[73.92]]))
>>> mean, lower, upper = band(BinaryPrediction([0.5], ("no", "yes"), [0.0], [1.0]))
>>> mean, lower                                               # the probability of yes
(array([[0.5]]), array([[0.1235]]))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from polyfed.predictions.classes import BinaryPrediction, MulticlassPrediction
from polyfed.predictions.numeric import CountPrediction, ProportionPrediction

REACH = 1.96  # standard deviations on each side hold 95 %

_LINKS = (
    (BinaryPrediction, special.expit),
    (CountPrediction, lambda f: np.exp(np.clip(f, -300, 300))),
    (ProportionPrediction, special.expit),
)


def band(prediction: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """What is expected, and the 95 % band of it; a column for each curve: the mean, or the probability of each class.

    Of two classes the second has the only curve. Several classes have no band, and neither has a model that does not
    know how sure it is.
    """
    if isinstance(prediction, MulticlassPrediction):
        return prediction.class_proba, None, None
    is_binary = isinstance(prediction, BinaryPrediction)
    mean = (prediction.proba if is_binary else prediction.mean)[:, None]
    reach = REACH * prediction.latent_std
    if not np.isfinite(reach).all() or not reach.any():
        return mean, None, None
    link = next((link for kind, link in _LINKS if isinstance(prediction, kind)), lambda f: f)
    return mean, link(prediction.latent_mean - reach)[:, None], link(prediction.latent_mean + reach)[:, None]
