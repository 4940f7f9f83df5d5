"""Models of all rows in one place, with an intercept for each client, or with the client as a category.

scikit-learn's: Pedregosa et al., "Scikit-learn: Machine Learning in Python", Journal of Machine Learning Research 2011,
arXiv:1201.0490. Boosted trees: Prokhorenkova et al., "CatBoost: unbiased boosting with categorical features", NeurIPS 2018,
arXiv:1706.09516; scikit-learn's follow Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017.
Mixed effects are statsmodels': Laird and Ware, "Random-effects models for longitudinal data", Biometrics 1982,
doi:10.2307/2529876, by restricted maximum likelihood; classes by the posterior mode of a logistic model with the same
intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from scipy import special

from polyfed.kinds import LabelForm, own_kinds
from polyfed.methods.options import check_numbers
from polyfed.methods.rivals.base import Rival, quietly, require
from polyfed.methods.rivals.reading import Clients, Inputs, Labelled, Numbers, Predicted

STEPS = 1000


class PooledRival(Rival):
    """With the client of each row among its inputs."""

    pools_data: ClassVar[bool] = True
    needs_client: ClassVar[bool] = True


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


TINY = 1e-8


@dataclass(frozen=True)
class MixedEffects(PooledRival):
    """The features have the same effect everywhere, and each client an intercept drawn from one distribution.

    Args:
        labels_per_effect: labels for each fixed effect at least; where features are more, their leading
            principal components stand for them.
    """

    name: ClassVar[str] = "mixed-effects"
    summary: ClassVar[str] = "no privacy: linear and logistic mixed effects of all rows (statsmodels)"
    kinds: ClassVar[tuple[str, ...] | None] = own_kinds(LabelForm.NUMBER, LabelForm.BINARY, LabelForm.CLASS)

    labels_per_effect: int = 5

    @property
    def takes_weights(self) -> bool:
        return False  # statsmodels has none for mixed effects

    def __post_init__(self) -> None:
        check_numbers(self, "labels_per_effect", whole=True, least=1)

    @classmethod
    def require(cls) -> None:
        require("statsmodels", cls.name)

    def fit_numbers(self, rows: Labelled) -> Numbers:
        x, y = rows.x, rows.y
        design, clients = _design(x, self.labels_per_effect), Clients.of(x)
        groups = np.nan_to_num(clients.positions(x), nan=-1.0)
        MixedLM = require("statsmodels.regression.mixed_linear_model", self.name).MixedLM
        with quietly():
            try:
                model = MixedLM(y, design(x), groups=groups).fit(reml=True, method="lbfgs")
                effects = {group: float(np.asarray(value)[0]) for group, value in model.random_effects.items()}
            except (np.linalg.LinAlgError, ValueError):  # the likelihood has no inner maximum
                return _least_squares(design, x, y)
        sigma2, tau2 = float(model.scale), float(np.asarray(model.cov_re)[0, 0])
        k = design(x).shape[1]
        fixed, covariance = np.asarray(model.fe_params), np.asarray(model.cov_params())[:k, :k]
        sizes = {group: int(np.sum(groups == group)) for group in effects}
        if not np.isfinite(covariance).all():
            covariance = sigma2 * np.linalg.pinv(design(x).T @ design(x))

        def predict(new: Inputs) -> tuple[np.ndarray, np.ndarray]:
            A, of_row = design(new), np.nan_to_num(clients.positions(new), nan=-1.0)
            own = np.array([effects.get(group, 0.0) for group in of_row])
            n = np.array([sizes.get(group, 0) for group in of_row])
            unsure = tau2 * sigma2 / np.maximum(sigma2 + n * tau2, TINY)  # of the intercept, given the client's labels
            variance = sigma2 + unsure + np.maximum(np.einsum("ij,jk,ik->i", A, covariance, A), 0.0)
            return A @ fixed + own, np.sqrt(variance)

        return predict

    def fit_classes(self, rows: Labelled) -> Predicted:
        """One class against the others, for each of them; of two classes the second alone."""
        x, y = rows.x, rows.y
        design, clients = _design(x, self.labels_per_effect), Clients.of(x)
        chosen = [1] if y.max() == 1 else list(range(int(y.max()) + 1))
        sides = [self._logistic((y == k).astype(float), design(x), clients.one_hot(x)) for k in chosen]

        def proba(new: Inputs) -> np.ndarray:
            columns = np.column_stack([design(new), clients.one_hot(new)])
            p = special.expit(np.clip(columns @ np.column_stack(sides), -30, 30))
            p = np.column_stack([1 - p, p]) if len(chosen) == 1 else p
            return p / p.sum(1, keepdims=True)

        return proba

    def _logistic(self, y: np.ndarray, A: np.ndarray, one_hot: np.ndarray) -> np.ndarray:
        """Fixed effects and intercepts."""
        from scipy.sparse import csr_matrix

        GLM = require("statsmodels.genmod.bayes_mixed_glm", self.name).BinomialBayesMixedGLM
        # Where it starts is drawn; older versions of statsmodels take no seed.
        seed = {"rng": 0} if "rng" in signature(GLM.fit_map).parameters else {}
        with quietly():
            model = GLM(y, A, csr_matrix(one_hot), np.zeros(one_hot.shape[1], dtype=int)).fit_map(**seed)
        found = np.concatenate([model.fe_mean, model.vc_mean])
        return np.where(np.isfinite(found), found, 0.0)


def _design(x: Inputs, per_effect: int) -> Predicted:
    """A constant, and principal components of the features with spread one: all, or as many as the labels allow."""
    mean, spread = x.features.mean(0), x.features.std(0)
    scale = np.where(spread > TINY, spread, np.inf)  # a constant says nothing
    _, lengths, directions = np.linalg.svd((x.features - mean) / scale, full_matrices=False)
    kept = min(int(np.sum(lengths > 1e-6 * max(lengths[0], TINY))), len(x) // per_effect) if len(lengths) else 0
    turn = directions[:kept].T / lengths[:kept] * np.sqrt(len(x))

    def columns(new: Inputs) -> np.ndarray:
        return np.column_stack([np.ones(len(new)), (new.features - mean) / scale @ turn])

    return columns


def _least_squares(design: Predicted, x: Inputs, y: np.ndarray) -> Numbers:
    A = design(x)
    fixed = np.linalg.lstsq(A, y, rcond=None)[0]
    spread = float(np.sqrt(np.sum((y - A @ fixed) ** 2) / max(1, len(y) - A.shape[1])))
    return lambda new: (design(new) @ fixed, np.full(len(new), spread))


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
