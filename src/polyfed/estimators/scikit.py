"""The model as scikit-learn estimators: pipelines, cross-validation and grid search work as with any other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from polyfed.data import Task
from polyfed.estimators.multitask import MultiTaskGP
from polyfed.gp.kernels import KernelLike
from polyfed.predictions import Predictions


class _GPEstimator(BaseEstimator):
    """Parameters and plumbing that both estimators share."""

    gp_: MultiTaskGP

    def __init__(
        self,
        *,
        n_latents: int | None = None,
        kernel: KernelLike = "rbf",
        per_dimension: bool = False,
        max_iterations: int = 50,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_latents = n_latents
        self.kernel = kernel
        self.per_dimension = per_dimension
        self.max_iterations = max_iterations
        self.random_state = random_state

    def _gp(self, tasks: list[Task], n_latents: int) -> MultiTaskGP:
        return MultiTaskGP(
            tasks,
            self.n_latents or n_latents,
            kernel=self.kernel,
            per_dimension=self.per_dimension,
            max_iterations=self.max_iterations,
            seed=0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def _predict(self, X: Any) -> Predictions:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.gp_.predict(X)


class GPRegressor(RegressorMixin, _GPEstimator):
    """Gaussian-process regression; several targets are modelled jointly.

    `n_latents` is the number of targets by default. `gp_` is the `MultiTaskGP` underneath.

    >>> x = np.linspace(0, 6, 20)[:, None]
    >>> mean, std = GPRegressor().fit(x, np.sin(x[:, 0])).predict([[1.5]], return_std=True)
    >>> mean.round(2), bool(std[0] < 0.1)
    (array([1.]), True)
    """

    def fit(self, X: Any, y: Any) -> GPRegressor:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._flat = y.ndim == 1
        columns = y.reshape(len(y), -1)
        tasks = [Task(f"y{i}", "regression") for i in range(columns.shape[1])]
        labels = {task.name: columns[:, i] for i, task in enumerate(tasks)}
        self.gp_ = self._gp(tasks, len(tasks)).fit(X, labels)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Mean of y at each row, with `return_std` also its standard deviation (noise included)."""
        predictions = self._predict(X)
        mean = np.stack([p.mean for p in predictions.values()], 1)
        std = np.stack([p.std for p in predictions.values()], 1)
        if self._flat:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class GPClassifier(ClassifierMixin, _GPEstimator):
    """Gaussian-process classification: logistic for two classes, one-vs-each softmax for more.

    `n_latents` is one for two classes and the number of classes otherwise (five at the most) by default.

    >>> x = np.linspace(-3, 3, 20)[:, None]
    >>> clf = GPClassifier().fit(x, np.where(x[:, 0] > 0, "up", "down"))
    >>> clf.predict([[2.0], [-2.0]])
    array(['up', 'down'], dtype='<U4')
    """

    def fit(self, X: Any, y: Any) -> GPClassifier:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(f"GPClassifier needs at least two classes, but y has one class: {self.classes_[0]!r}.")
        position = np.searchsorted(self.classes_, y)
        task = Task("y", "binary" if K == 2 else "multiclass", classes=tuple(range(K)))
        self.gp_ = self._gp([task], 1 if K == 2 else min(K, 5)).fit(X, {"y": position})
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        return self._predict(X)["y"].class_proba

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class at each row."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(1)]
