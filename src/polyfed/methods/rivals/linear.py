"""Linear models of all rows in one place, with an intercept for each client.

scikit-learn's: Pedregosa et al., "Scikit-learn: Machine Learning in Python", Journal of Machine Learning Research 2011,
arXiv:1201.0490.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.methods.options import check_number
from polyfed.methods.rivals.base import Rival
from polyfed.methods.rivals.extras import quietly
from polyfed.methods.rivals.inputs import Clients, Inputs
from polyfed.methods.rivals.reading import Classes, Numbers, Rates

STEPS = 1000


@dataclass(frozen=True)
class LinearPooled(Rival):
    """scikit-learn's BayesianRidge, LogisticRegression and PoissonRegressor.

    Args:
        strength: C of the logistic regression; 1/strength is the penalty of rates.
    """

    name: ClassVar[str] = "sklearn-linear-pooled"
    summary: ClassVar[str] = "no privacy: linear models of all rows, an intercept for each client"
    pools_data: ClassVar[bool] = True
    needs_client: ClassVar[bool] = True

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_number("strength", self.strength, above=0)

    def fit_numbers(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Numbers:
        from sklearn.linear_model import BayesianRidge

        columns, model = _columns(x), BayesianRidge()
        with quietly():
            model.fit(columns(x), y, sample_weight=weights)
        return lambda new: model.predict(columns(new), return_std=True)  # pyright: ignore[reportReturnType]

    def fit_classes(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Classes:
        from sklearn.linear_model import LogisticRegression

        columns, model = _columns(x), LogisticRegression(C=self.strength, max_iter=STEPS)
        with quietly():
            model.fit(columns(x), y, sample_weight=weights)
        return lambda new: model.predict_proba(columns(new))

    def fit_rates(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Rates:
        from sklearn.linear_model import PoissonRegressor

        columns, model = _columns(x), PoissonRegressor(alpha=1.0 / self.strength, max_iter=STEPS)
        with quietly():
            model.fit(columns(x), y, sample_weight=weights)
        return lambda new: _finite(model, columns(new))


def _columns(x: Inputs) -> Callable[[Inputs], np.ndarray]:
    """Indicators of the clients and the features, each with spread one."""
    from sklearn.preprocessing import StandardScaler

    clients = Clients.of(x)

    def together(new: Inputs) -> np.ndarray:
        return np.column_stack([clients.one_hot(new), new.features])

    scaler: Any = StandardScaler().fit(together(x))
    return lambda new: scaler.transform(together(new))


def _finite(model: Any, columns: np.ndarray) -> np.ndarray:
    """Far from all data a rate may be anything; e^50 is endless already."""
    return np.exp(np.clip(columns @ model.coef_ + model.intercept_, -50, 50))
