"""Predictions of numbers: targets, counts and proportions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from polyfed.errors import ConfigError, DataError
from polyfed.predictions.base import Prediction, Said, as_floats
from polyfed.predictions.densities import log_binomial_average, log_count_average, log_normal, log_student_average
from polyfed.predictions.quantiles import count_cdf, count_quantile, in_blocks, rate_std, student_cdf, student_reach

if TYPE_CHECKING:
    from polyfed.data import LabelCodec


@dataclass(frozen=True, eq=False, repr=False)
class _NumericPrediction(Prediction):
    latent_mean: np.ndarray
    latent_std: np.ndarray

    @abstractmethod
    def quantile(self, q: float) -> np.ndarray:
        """The value that is not exceeded with probability q."""

    @abstractmethod
    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability that the value of each row is at most this one."""

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval with this probability, as (lower, upper)."""
        outside = (1 - _probability("level", level)) / 2
        return self.quantile(outside), self.quantile(1 - outside)

    def columns(self) -> dict[str, np.ndarray]:
        lower, upper = self.interval(0.95)
        return {**{name: getattr(self, name) for name in ("mean", "std")}, "lower": lower, "upper": upper}

    def _first(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)[0]:.4g}" for name in ("mean", "std"))

    def _observed(
        self, y: ArrayLike, n_columns: int = 1, remedy: str = "give one label for each row predicted"
    ) -> np.ndarray:
        """Finite numbers, one (or a row of n columns) for each row predicted."""
        try:
            y = as_floats(y)
        except (TypeError, ValueError) as error:
            raise DataError("the labels are not all numbers", remedy=remedy) from error
        shape = (len(self),) if n_columns == 1 else (len(self), n_columns)
        if y.shape != shape and not y.size == len(self) == 0:
            raise DataError(f"labels of shape {y.shape} do not fit {len(self)} predictions", remedy=remedy)
        y = y.reshape(shape)
        _reject(~np.isfinite(y).all(axis=tuple(range(1, y.ndim))), y, "is not finite", "correct it or drop the row")
        return y


class _InUnits(_NumericPrediction):
    """Of a label that was shifted and scaled, and the latent function with it."""

    @classmethod
    def of_latents(cls, labels: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Said) -> Self:
        """In the units of the labels, as are what the likelihood calls a scale or a standard deviation."""
        scaled = {name: labels.scale * value for name, value in said.items() if name in ("noise_std", "scale")}
        centre = labels.shift + labels.scale * mean[:, 0]
        return cls._made(labels, centre, labels.scale * std[:, 0], {**said, **scaled})

    @property
    def mean(self) -> np.ndarray:
        return self.latent_mean


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPrediction(_InUnits):
    """y = f + Gaussian noise."""

    noise_std: np.ndarray

    @property
    def std(self) -> np.ndarray:
        return np.hypot(self.latent_std, self.noise_std)

    def quantile(self, q: float) -> np.ndarray:
        return self.mean + special.ndtri(_probability("q", q)) * self.std

    def cdf(self, y: ArrayLike) -> np.ndarray:
        away = self._observed(y) - self.mean
        return special.ndtr(np.clip(away / np.maximum(self.std, 1e-150), -1e150, 1e150))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        return log_normal(self._observed(y) - self.mean, self.std)


@dataclass(frozen=True, eq=False, repr=False)
class RobustPrediction(_InUnits):
    """y = f + scale * t, with Student-t noise t of `dof` degrees of freedom; `mean` is the centre for any."""

    scale: np.ndarray
    dof: np.ndarray

    @property
    def std(self) -> np.ndarray:
        """Of y; with dof <= 2 there is none, and half the width of the 68.27% interval stands in for it."""
        heavy = self.dof <= 2
        dof = np.where(heavy, 4.0, np.minimum(self.dof, 1e8))
        exact = np.hypot(self.latent_std, self.scale * np.sqrt(dof / (dof - 2)))
        return np.where(heavy, self._reach(special.ndtr(-1.0)), exact) if heavy.any() else exact

    def quantile(self, q: float) -> np.ndarray:
        q = _probability("q", q)
        return self.mean + (self._reach(1 - q) if q > 0.5 else -self._reach(q))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        return self._by_dof(student_cdf, self._observed(y) - self.mean)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        away = self._observed(y) - self.mean
        return log_student_average(away, self.latent_std, self.scale, self.dof)

    def _reach(self, tail: float) -> np.ndarray:
        """How far above its centre y is exceeded with probability `tail` only."""
        return self._by_dof(lambda dof: student_reach(tail, dof))

    def _by_dof(self, function_of: Callable[[float], Callable[..., np.ndarray]], *columns: np.ndarray) -> np.ndarray:
        found = np.full(len(self), np.nan)
        for dof in np.unique(self.dof):  # one, as a rule: it belongs to the task
            rows = self.dof == dof
            given = (column[rows] for column in (*columns, self.latent_std, self.scale))
            found[rows] = in_blocks(function_of(float(dof)), *given)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class CountPrediction(_NumericPrediction):
    """y is negative binomial with rate e^f and variance rate + rate^2 / dispersion."""

    dispersion: np.ndarray

    @classmethod
    def of_latents(cls, labels: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Said) -> Self:
        """The latent of a count is shown as the logarithm of its rate."""
        return cls._made(labels, mean[:, 0] + said["log_typical"], std[:, 0], said)

    @property
    def mean(self) -> np.ndarray:
        # Far from all data f may be anything: a rate of e^300 is endless already and can still be squared.
        return np.exp(np.clip(self.latent_mean + self.latent_std**2 / 2, -300, 300))

    @property
    def std(self) -> np.ndarray:
        """By the law of total variance: mean + E[rate^2] / dispersion + Var[rate]."""
        v = np.minimum(self.latent_std**2, 300)  # for the same reason
        relative = np.expm1(v) + np.exp(v) / np.maximum(self.dispersion, 1e-100)
        return self.mean * np.sqrt(1 / self.mean + relative)

    def quantile(self, q: float) -> np.ndarray:
        """The smallest whole number that y does not exceed with probability at least q."""
        q = _probability("q", q)
        return in_blocks(lambda *row: count_quantile(q, *row), self._log_rate(), self.latent_std, self.dispersion)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability that the count is at most this, which need not be a whole number."""
        y = np.floor(self._observed(y))
        below = in_blocks(count_cdf, np.maximum(y, 0.0), self._log_rate(), self.latent_std, self.dispersion)
        return np.where(y < 0, 0.0, below)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        y = self._observed(y)
        _reject((y < 0) | (y != np.floor(y)), y, "is not a whole number from 0 up", "correct it or drop the row")
        return log_count_average(y, self._log_rate(), self.latent_std, self.dispersion)

    def _linked(self, f: np.ndarray) -> np.ndarray:
        return np.exp(np.clip(f, -300, 300))

    def _log_rate(self) -> np.ndarray:
        return np.clip(self.latent_mean, -300, 300)


@dataclass(frozen=True, eq=False, repr=False)
class ProportionPrediction(_NumericPrediction):
    """The success rate sigmoid(f), whose mean is handed over; all here is about the rate, not about k / n."""

    mean: np.ndarray

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of the rate."""
        return in_blocks(rate_std, self.latent_mean, self.latent_std)

    def quantile(self, q: float) -> np.ndarray:
        """The value that the rate (not k / n) does not exceed with probability q."""
        return special.expit(self.latent_mean + special.ndtri(_probability("q", q)) * self.latent_std)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """The probability that the rate (not k / n) is at most this."""
        away = special.logit(np.clip(self._observed(y), 0.0, 1.0)) - self.latent_mean
        return special.ndtr(np.clip(away / np.maximum(self.latent_std, 1e-150), -1e150, 1e150))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """The log probability of each pair (successes, trials): of k, given n."""
        remedy = "give two columns, successes and trials, as in [[3, 10], [0, 4]]"
        y = self._observed(y, 2, remedy)
        successes, trials = y.T
        _reject((y != np.floor(y)).any(axis=1) | (successes < 0), y, "is not made of whole numbers from 0 up", remedy)
        _reject(trials < 1, y, "has no trials", "drop the row")
        _reject(successes > trials, y, "has more successes than trials", remedy)
        return log_binomial_average(successes, trials - successes, self.latent_mean, self.latent_std)

    def _linked(self, f: np.ndarray) -> np.ndarray:
        return special.expit(f)


def _reject(wrong: np.ndarray | np.bool_, y: np.ndarray, what: str, remedy: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        label = ", ".join(f"{number:g}" for number in np.atleast_1d(y[row]))
        label = f"({label})" if y.ndim == 2 else label
        raise DataError(f"label {label} {what}", where=f"row {row}", remedy=remedy)


def _probability(name: str, value: float) -> float:
    try:
        if 0 < float(value) < 1:
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{name}={value!r} is not between 0 and 1", remedy="choose for example 0.95")
