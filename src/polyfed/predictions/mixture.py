"""What several models say of the same rows, each as probable as the others: the average of their distributions.

A model whose parameters are not known for sure predicts with several draws of them. Probabilities, densities and means are
averaged; variances are those within the models and, on top, the variance between their means; a quantile is that of the
averaged distribution, found by bisection between the smallest and the largest of the models' own. Latent moments are those
of the mixture, so that bands and coverages of latent functions need not know where they come from.

>>> from polyfed.predictions import RegressionPrediction
>>> sure = [Predictions({"pulse": RegressionPrediction([centre], 0.0, 1.0)}) for centre in (60.0, 80.0)]
>>> both = mixed(sure)["pulse"]
>>> both.mean, both.std.round(2), both.quantile(0.75).round(2)
(array([70.]), array([10.05]), array([80.]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from polyfed.predictions.base import Prediction, Predictions
from polyfed.predictions.classes import BinaryPrediction, MulticlassPrediction
from polyfed.predictions.numeric import CountPrediction, ProportionPrediction, RegressionPrediction, RobustPrediction

_HALVINGS = 60  # of an interval, to the last digits of its length


def mixed(said: Sequence[Predictions]) -> Predictions:
    """The average of what several models say of the same rows; one alone is itself."""
    return said[0] if len(said) == 1 else Predictions({task: mixture([one[task] for one in said]) for task in said[0]})


def mixture(parts: Sequence[Prediction]) -> Any:
    """The average of several predictions of one task and the same rows."""
    kind: Any = next((of for of in _OWN if isinstance(parts[0], of)), type(parts[0]))
    together = {}
    for field in fields(kind):
        values = [getattr(part, field.name) for part in parts]
        average = _root_mean_square if field.name in _SPREADS else _mean
        together[field.name] = average(values) if field.name != "classes" else values[0]
    between = np.std([part.latent_mean for part in parts], axis=0)
    together["latent_std"] = np.hypot(together["latent_std"], between)
    found = _class_of(kind)(**together)
    object.__setattr__(found, "parts", tuple(parts))  # frozen for users, not for their construction
    return found


def _mean(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.mean(values, axis=0)


def _root_mean_square(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.sqrt(np.mean(np.square(values), axis=0))


_OWN = (
    *(RegressionPrediction, RobustPrediction, CountPrediction),
    *(ProportionPrediction, BinaryPrediction, MulticlassPrediction),
)
_SPREADS = ("latent_std", "noise_std", "scale")  # fields whose squares are averaged; of others a plain mean is taken


class _Mixture(Prediction):
    parts: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:  # its class is made when it is first asked for, and has no place
        return mixture, (self.parts,)

    def take(self, rows: np.ndarray | slice) -> Any:
        return mixture([part.take(rows) for part in self.parts])

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """The logarithm of the averaged density (of a discrete label, of its averaged probability)."""
        each = np.stack([part.log_density(y) for part in self.parts])
        return special.logsumexp(each, axis=0) - np.log(len(self.parts))


class _NumericMixture(_Mixture):
    @property
    def std(self) -> np.ndarray:
        """By the law of total variance."""
        within = _root_mean_square([part.std for part in self.parts])
        return np.hypot(within, np.std([part.mean for part in self.parts], axis=0))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        return _mean([part.cdf(y) for part in self.parts])

    def quantile(self, q: float) -> np.ndarray:
        each = np.stack([part.quantile(q) for part in self.parts])
        low, high = each.min(axis=0), each.max(axis=0)
        for _ in range(_HALVINGS):
            middle = self._between(low, high)
            if not ((low < middle) & (middle < high)).any():
                break
            enough = self.cdf(middle) >= q
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(self.cdf(low) >= q, low, high)

    def _between(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return low + (high - low) / 2


class _CountMixture(_NumericMixture):
    @property
    def mean(self) -> np.ndarray:
        return _mean([part.mean for part in self.parts])

    def _between(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.floor(low + (high - low) / 2)


@cache
def _class_of(kind: type[Prediction]) -> type[Any]:
    of = _CountMixture if kind is CountPrediction else _NumericMixture if hasattr(kind, "cdf") else _Mixture
    return type(f"{kind.__name__.removesuffix('Prediction')}Mixture", (of, kind), {})
