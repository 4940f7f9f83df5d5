"""Models of a client's own rows alone: a random forest and a Gaussian process, as scikit-learn has them.

Breiman: "Random Forests", Machine Learning 2001, doi:10.1023/A:1010933404324; Rasmussen, Williams: "Gaussian Processes for
Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.kinds import LabelForm, own_kinds
from polyfed.methods.options import check_numbers
from polyfed.methods.rivals.base import Rival, quietly
from polyfed.methods.rivals.reading import Inputs, Labelled, Numbers, Predicted


@dataclass(frozen=True)
class RandomForestLocal(Rival):
    """scikit-learn's random forest; the spread of a regression is that of out-of-bag residuals.

    Args:
        trees: number of trees.
        min_samples_leaf: rows in a leaf at least.
    """

    name: ClassVar[str] = "sklearn-rf-local"
    summary: ClassVar[str] = "no federation: a random forest of each client's own rows"

    trees: int = 50
    min_samples_leaf: int = 2

    def __post_init__(self) -> None:
        check_numbers(self, "trees", "min_samples_leaf", whole=True, least=1)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        model = self._forest("Regressor", rows, oob_score=True)
        left = rows.y - model.oob_prediction_
        known = np.isfinite(left)  # a row that no tree has left out was not predicted; with trees enough there is none
        counted = np.average(left[known] ** 2, weights=rows.counted[known]) if known.any() else rows.y.var()
        return lambda new: (model.predict(new.features), np.full(len(new), float(np.sqrt(counted))))

    def fit_classes(self, rows: Labelled) -> Predicted:
        model = self._forest("Classifier", rows)
        return lambda new: model.predict_proba(new.features)

    def fit_rates(self, rows: Labelled) -> Predicted:
        model = self._forest("Regressor", rows)
        return lambda new: model.predict(new.features)

    def _forest(self, kind: str, rows: Labelled, *, oob_score: bool = False) -> Any:
        from sklearn import ensemble

        leaf, make = self.min_samples_leaf, getattr(ensemble, f"RandomForest{kind}")
        model = make(self.trees, min_samples_leaf=leaf, random_state=rows.seed, oob_score=oob_score)
        with quietly():  # of rows that every tree has seen
            return model.fit(rows.x.features, rows.y, sample_weight=rows.weights)


@dataclass(frozen=True)
class GaussianProcessLocal(Rival):
    """scikit-learn's Gaussian processes, with an RBF kernel whose amplitude, length and noise it learns.

    Args:
        max_rows: rows to learn from, drawn at random where there are more: the work grows with their cube.
    """

    name: ClassVar[str] = "sklearn-gp-local"
    summary: ClassVar[str] = "no federation: a Gaussian process of each client's own rows, task by task"
    kinds: ClassVar[tuple[str, ...] | None] = own_kinds(LabelForm.NUMBER, LabelForm.BINARY, LabelForm.CLASS)

    max_rows: int = 1000

    @property
    def takes_weights(self) -> bool:
        return False  # scikit-learn's Gaussian processes know none

    def __post_init__(self) -> None:
        check_numbers(self, "max_rows", whole=True, least=10)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import WhiteKernel

        rows = self._some(rows)
        shift, scale = rows.y.mean(), rows.y.std()
        model = GaussianProcessRegressor(_kernel(rows.x) + WhiteKernel(0.3, (1e-3, 1e1)), random_state=rows.seed)
        with quietly():
            model.fit(rows.x.features, (rows.y - shift) / scale)

        def predict(new: Inputs) -> tuple[np.ndarray, np.ndarray]:
            mean, std = model.predict(new.features, return_std=True)  # pyright: ignore[reportAssignmentType]
            return shift + scale * mean, scale * std

        return predict

    def fit_classes(self, rows: Labelled) -> Predicted:
        from sklearn.gaussian_process import GaussianProcessClassifier

        rows = self._some(rows, sure=np.unique(rows.y, return_index=True)[1].tolist())  # one of each class
        model = GaussianProcessClassifier(_kernel(rows.x), random_state=rows.seed)
        with quietly():
            model.fit(rows.x.features, rows.y)
        return lambda new: model.predict_proba(new.features)

    def _some(self, rows: Labelled, sure: Sequence[int] = ()) -> Labelled:
        if len(rows) <= self.max_rows:
            return rows
        drawn = np.random.default_rng(rows.seed).permutation(len(rows))[: self.max_rows - len(sure)]
        return rows.take(np.unique([*sure, *drawn]))


def _kernel(x: Inputs) -> Any:
    """Features have spread one, so two rows are typically √(2D) apart."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return ConstantKernel(1.0, (1e-2, 1e2)) * RBF(np.sqrt(max(1, x.features.shape[1])), (1e-1, 1e2))
