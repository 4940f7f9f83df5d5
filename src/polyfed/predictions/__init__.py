"""What a model says about new rows, one object for each task, in the users' own units and labels.

A model hands over the mean and standard deviation of its latent function f at each row, and what its
likelihood needs; all that a user asks for follows from these. `latent_std` is of f, `std` of the observation.

>>> pulse = RegressionPrediction(latent_mean=[70.0, 80.0], latent_std=[3.0, 0.0], noise_std=4.0)
>>> pulse
RegressionPrediction(n=2, first: mean=70, std=5)
>>> lower, upper = pulse.interval(0.95)
>>> lower.round(1), upper.round(1)
(array([60.2, 72.2]), array([79.8, 87.8]))
>>> pulse.log_density([70.0, 90.0]).round(2)
array([-2.53, -5.43])
"""

from polyfed.predictions.base import Prediction, Predictions
from polyfed.predictions.classes import BinaryPrediction, MulticlassPrediction
from polyfed.predictions.numeric import CountPrediction, ProportionPrediction, RegressionPrediction, RobustPrediction

__all__ = [
    "BinaryPrediction",
    "CountPrediction",
    "MulticlassPrediction",
    "Prediction",
    "Predictions",
    "ProportionPrediction",
    "RegressionPrediction",
    "RobustPrediction",
]
