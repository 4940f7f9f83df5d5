"""Mixed effects: the features have the same effect everywhere, and each client an intercept drawn from one distribution.

Laird and Ware, "Random-effects models for longitudinal data", Biometrics 1982, doi:10.2307/2529876, by restricted maximum
likelihood; classes by the posterior mode of a logistic model with the same intercepts. Fitted by statsmodels.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import ClassVar

import numpy as np
from scipy import special

from polyfed.kinds import LabelForm, own_kinds
from polyfed.methods.options import check_numbers
from polyfed.methods.rivals.base import quietly, require
from polyfed.methods.rivals.pooled import PooledRival
from polyfed.methods.rivals.reading import Clients, Inputs, Labelled, Numbers, Predicted

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
