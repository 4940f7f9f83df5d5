"""Models of a client's own rows alone: a random forest and a Gaussian process, as scikit-learn has them.

Breiman: "Random Forests", Machine Learning 2001, doi:10.1023/A:1010933404324; Rasmussen, Williams: "Gaussian Processes for
Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyfed.kinds import LabelForm, own_kinds
from polyfed.methods.options import check_number
from polyfed.methods.rivals.base import Rival
from polyfed.methods.rivals.extras import quietly
from polyfed.methods.rivals.inputs import Inputs
from polyfed.methods.rivals.reading import Classes, Numbers, Rates


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
        for option in ("trees", "min_samples_leaf"):
            check_number(option, getattr(self, option), whole=True, least=1)

    def fit_numbers(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Numbers:
        model = self._regressor(x, y, weights, seed, oob_score=True)
        left = y - model.oob_prediction_
        # A row that no tree has left out was not predicted; with trees enough there is none.
        known, counted = np.isfinite(left), np.ones(len(y)) if weights is None else weights
        spread = float(np.sqrt(np.average(left[known] ** 2, weights=counted[known]))) if known.any() else float(y.std())
        return lambda new: (model.predict(new.features), np.full(len(new), spread))

    def fit_classes(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Classes:
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(self.trees, min_samples_leaf=self.min_samples_leaf, random_state=seed)
        model.fit(x.features, y, sample_weight=weights)
        return lambda new: np.asarray(model.predict_proba(new.features))

    def fit_rates(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Rates:
        model = self._regressor(x, y, weights, seed)
        return lambda new: model.predict(new.features)

    def _regressor(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int, **options: Any) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        model = RandomForestRegressor(self.trees, min_samples_leaf=self.min_samples_leaf, random_state=seed, **options)
        with quietly():  # of rows that every tree has seen
            return model.fit(x.features, y, sample_weight=weights)


@dataclass(frozen=True)
class GaussianProcessLocal(Rival):
    """scikit-learn's Gaussian processes, with an RBF kernel whose amplitude, length and noise it learns.

    Args:
        max_rows: learn from so many rows, drawn at random, where there are more: the work grows with their cube.
    """

    name: ClassVar[str] = "sklearn-gp-local"
    summary: ClassVar[str] = "no federation: a Gaussian process of each client's own rows, task by task"
    kinds: ClassVar[tuple[str, ...] | None] = own_kinds(LabelForm.NUMBER, LabelForm.BINARY, LabelForm.CLASS)

    max_rows: int = 1000

    @property
    def takes_weights(self) -> bool:
        return False  # scikit-learn's Gaussian processes know none

    def __post_init__(self) -> None:
        check_number("max_rows", self.max_rows, whole=True, least=10)

    def fit_numbers(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Numbers:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import WhiteKernel

        x, y = self._some(x, y, seed)
        shift, scale = y.mean(), y.std()
        model = GaussianProcessRegressor(_kernel(x) + WhiteKernel(0.3, (1e-3, 1e1)), random_state=seed)
        with quietly():
            model.fit(x.features, (y - shift) / scale)

        def predict(new: Inputs) -> tuple[np.ndarray, np.ndarray]:
            mean, std = model.predict(new.features, return_std=True)  # pyright: ignore[reportAssignmentType]
            return shift + scale * mean, scale * std

        return predict

    def fit_classes(self, x: Inputs, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Classes:
        from sklearn.gaussian_process import GaussianProcessClassifier

        x, y = self._some(x, y, seed, sure=np.unique(y, return_index=True)[1].tolist())  # one of each class
        model: Any = GaussianProcessClassifier(_kernel(x), random_state=seed)
        with quietly():
            model.fit(x.features, y)
        proba: Callable[[np.ndarray], np.ndarray] = model.predict_proba
        return lambda new: proba(new.features)

    def _some(self, x: Inputs, y: np.ndarray, seed: int, sure: Sequence[int] = ()) -> tuple[Inputs, np.ndarray]:
        if len(x) <= self.max_rows:
            return x, y
        drawn = np.random.default_rng(seed).permutation(len(x))[: self.max_rows - len(sure)]
        rows = np.unique([*sure, *drawn])
        return x.take(rows), y[rows]


def _kernel(x: Inputs) -> Any:
    """Features have spread one, so two rows are typically √(2D) apart."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return ConstantKernel(1.0, (1e-2, 1e2)) * RBF(np.sqrt(max(1, x.features.shape[1])), (1e-1, 1e2))
