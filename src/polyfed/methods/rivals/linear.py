"""Linear models of all rows in one place, with an intercept for each client.

scikit-learn's: Pedregosa et al., "Scikit-learn: Machine Learning in Python", Journal of Machine Learning Research 2011,
arXiv:1201.0490.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.methods.options import check_numbers
from polyfed.methods.rivals.base import quietly
from polyfed.methods.rivals.pooled import PooledRival
from polyfed.methods.rivals.reading import Clients, Inputs, Labelled, Numbers, Predicted

STEPS = 1000


@dataclass(frozen=True)
class LinearPooled(PooledRival):
    """scikit-learn's BayesianRidge, LogisticRegression and PoissonRegressor.

    Args:
        strength: C of the logistic regression; 1/strength is the penalty of rates.
    """

    name: ClassVar[str] = "sklearn-linear-pooled"
    summary: ClassVar[str] = "no privacy: linear models of all rows, an intercept for each client"

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self, "strength", above=0)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        from sklearn.linear_model import BayesianRidge

        model, columns = _fitted(BayesianRidge(), rows)
        return lambda new: model.predict(columns(new), return_std=True)

    def fit_classes(self, rows: Labelled) -> Predicted:
        from sklearn.linear_model import LogisticRegression

        model, columns = _fitted(LogisticRegression(C=self.strength, max_iter=STEPS), rows)
        return lambda new: model.predict_proba(columns(new))

    def fit_rates(self, rows: Labelled) -> Predicted:
        from sklearn.linear_model import PoissonRegressor

        model, columns = _fitted(PoissonRegressor(alpha=1.0 / self.strength, max_iter=STEPS), rows)
        # Far from all data a rate may be anything; e^50 is endless already.
        return lambda new: np.exp(np.clip(columns(new) @ model.coef_ + model.intercept_, -50, 50))


def _fitted(model: Any, rows: Labelled) -> tuple[Any, Predicted]:
    """The model, and its columns: indicators of the clients and the features, each with spread one."""
    from sklearn.preprocessing import StandardScaler

    clients = Clients.of(rows.x)

    def together(new: Inputs) -> np.ndarray:
        return np.column_stack([clients.one_hot(new), new.features])

    scaler: Any = StandardScaler().fit(together(rows.x))
    with quietly():
        model.fit(scaler.transform(together(rows.x)), rows.y, sample_weight=rows.weights)
    return model, lambda new: scaler.transform(together(new))
