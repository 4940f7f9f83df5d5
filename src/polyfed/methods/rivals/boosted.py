"""Boosted trees of all rows in one place, with the client as a category: scikit-learn's and CatBoost's.

Prokhorenkova et al., "CatBoost: unbiased boosting with categorical features", NeurIPS 2018, arXiv:1706.09516;
the other follows Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.methods.options import check_numbers
from polyfed.methods.rivals.base import require
from polyfed.methods.rivals.pooled import PooledRival
from polyfed.methods.rivals.reading import Clients, Inputs, Labelled, Numbers, Predicted


@dataclass(frozen=True)
class HistGradientBoostingPooled(PooledRival):
    """scikit-learn's boosted trees.

    Args:
        iterations: number of trees.
        learning_rate: of each tree.
        min_samples_leaf: rows in a leaf at least.
    """

    name: ClassVar[str] = "sklearn-hgb-pooled"
    summary: ClassVar[str] = "no privacy: scikit-learn's boosted trees of all rows, the client as a category"

    iterations: int = 100
    learning_rate: float = 0.1
    min_samples_leaf: int = 20

    def __post_init__(self) -> None:
        check_numbers(self, "iterations", "min_samples_leaf", whole=True, least=1)
        check_numbers(self, "learning_rate", above=0)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        mean = self._boosted("Regressor", rows, "predict", "squared_error")
        return lambda new: (mean(new), None)

    def fit_classes(self, rows: Labelled) -> Predicted:
        return self._boosted("Classifier", rows, "predict_proba", "log_loss")

    def fit_rates(self, rows: Labelled) -> Predicted:
        return self._boosted("Regressor", rows, "predict", "poisson")

    def _boosted(self, kind: str, rows: Labelled, ask: str, loss: str) -> Predicted:
        """Of the client's position first, missing where it is not known, then the features."""
        from sklearn import ensemble

        clients = Clients.of(rows.x)
        model = getattr(ensemble, f"HistGradientBoosting{kind}")(
            loss=loss,
            max_iter=self.iterations,
            learning_rate=self.learning_rate,
            min_samples_leaf=self.min_samples_leaf,
            categorical_features=[0],
            random_state=rows.seed,
        )
        model.fit(np.column_stack([clients.positions(rows.x), rows.x.features]), rows.y, sample_weight=rows.weights)
        return lambda new: getattr(model, ask)(np.column_stack([clients.positions(new), new.features]))


@dataclass(frozen=True)
class CatBoostPooled(PooledRival):
    """CatBoost.

    Args:
        iterations: number of trees.
        depth: of each tree.
        border_count: splits that are tried of each feature.
    """

    name: ClassVar[str] = "catboost-pooled"
    summary: ClassVar[str] = "no privacy: CatBoost of all rows, the client as a category"

    iterations: int = 300
    depth: int = 4
    border_count: int = 64

    def __post_init__(self) -> None:
        check_numbers(self, "iterations", "border_count", whole=True, least=1)
        check_numbers(self, "depth", whole=True, least=1, below=17)  # CatBoost's own limit

    @classmethod
    def require(cls) -> None:
        require("catboost", cls.name)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        predict = self._boosted("CatBoostRegressor", rows, "predict", "RMSE")
        return lambda new: (predict(new), None)

    def fit_classes(self, rows: Labelled) -> Predicted:
        loss = "Logloss" if rows.y.max() == 1 else "MultiClass"
        return self._boosted("CatBoostClassifier", rows, "predict_proba", loss)

    def fit_rates(self, rows: Labelled) -> Predicted:
        return self._boosted("CatBoostRegressor", rows, "predict", "Poisson")

    def _boosted(self, kind: str, rows: Labelled, ask: str, loss: str) -> Predicted:
        catboost = require("catboost", self.name)
        features, client = rows.x.features.astype(np.float32), rows.x.client
        several = client is not None and len(np.unique(client)) > 1
        if not several and not (
            len(features) and np.ptp(features, axis=0).any()
        ):  # CatBoost does not learn from constants
            return _of_constants(rows, classes=ask == "predict_proba")
        model = getattr(catboost, kind)(
            loss_function=loss,
            iterations=self.iterations,
            depth=self.depth,
            border_count=self.border_count,
            random_seed=rows.seed,
            thread_count=1,  # the same model on any machine
            verbose=False,
            allow_writing_files=False,
        )
        model.fit(catboost.Pool(_typed(catboost, rows.x), rows.y, weight=rows.weights))
        return lambda new: np.asarray(getattr(model, ask)(catboost.Pool(_typed(catboost, new))), dtype=np.float64)


def _typed(catboost: Any, x: Inputs) -> Any:
    named = np.array([[b"%d" % int(position)] for position in x.client], dtype=object)  # pyright: ignore[reportOptionalIterable]
    return catboost.FeaturesData(num_feature_data=x.features.astype(np.float32), cat_feature_data=named)


def _of_constants(rows: Labelled, *, classes: bool) -> Predicted:
    if not classes:
        return lambda new: np.full(len(new), np.average(rows.y, weights=rows.weights))
    often = np.bincount(rows.y, rows.weights)
    return lambda new: np.tile(often / often.sum(), (len(new), 1))
