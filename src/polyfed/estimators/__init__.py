"""The model of one client, as users call it: `MultiTaskGP`, and scikit-learn adapters."""

from polyfed.estimators.multitask import MultiTaskGP
from polyfed.estimators.scikit import GPClassifier, GPRegressor

__all__ = ["GPClassifier", "GPRegressor", "MultiTaskGP"]
