"""Predictions of classes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from polyfed.errors import DataError, nearest
from polyfed.predictions.base import Prediction, Said
from polyfed.predictions.densities import log_binomial_average

if TYPE_CHECKING:
    from polyfed.data import LabelCodec

_LEAST = 1e-300  # a probability that is 0 as a double is taken as this
_HALF_A_BIT = 2.0**-54  # by which a double just below 1 may be rounded


@dataclass(frozen=True, eq=False, repr=False)
class _ClassPrediction(Prediction):
    proba: np.ndarray
    classes: tuple[Any, ...]
    latent_mean: np.ndarray
    latent_std: np.ndarray

    @property
    @abstractmethod
    def class_proba(self) -> np.ndarray:
        """One column for each class."""

    @property
    def label(self) -> np.ndarray:
        """The most probable class of each row, as the user writes it."""
        natural = np.array(self.classes)
        # numpy would make text of numbers among words, and numbers of booleans among numbers.
        same = natural.tolist() == list(self.classes) and len({type(label) is bool for label in self.classes}) == 1
        return (natural if same else np.array(self.classes, dtype=object))[self._winner()]

    def positions(self, y: Any) -> np.ndarray:
        """Which of `classes` each observed label is.

        >>> BinaryPrediction([0.2, 0.9], ("no", "yes"), [0.0, 0.0], [1.0, 1.0]).positions(["yes", "no"])
        array([1, 0])
        """
        labels = y.tolist() if hasattr(y, "tolist") else list(y)
        n, one_each = len(self), "give one label for each row predicted"
        if len(labels) != n:
            raise DataError(f"{len(labels)} labels do not fit {n} predictions", remedy=one_each)
        position = {label: i for i, label in enumerate(self.classes)}
        try:
            found = np.fromiter((position.get(label, -1) for label in labels), dtype=np.intp, count=n)
        except TypeError as error:  # a list in place of a label
            raise DataError("the labels are not one column", remedy=one_each) from error
        if n and found.min() < 0:
            row = int(found.argmin())
            what = f"label {labels[row]!r} is not one of the classes"
            known = f"known are {', '.join(map(repr, self.classes))}"  # so that 1 and '1' differ
            are_texts = all(isinstance(label, str) for label in (labels[row], *self.classes))
            raise DataError(what, where=f"row {row}", remedy=nearest(labels[row], self.classes) if are_texts else known)
        return found

    def log_density(self, y: ArrayLike) -> np.ndarray:
        return np.log(np.maximum(self.class_proba[np.arange(len(self)), self.positions(y)], _LEAST))

    def columns(self) -> dict[str, np.ndarray]:
        """The label, and the probability of each class."""
        named = {f"p({label})": self.class_proba[:, i] for i, label in enumerate(self.classes)}
        return {"label": self.label, **named}

    def _first(self) -> str:
        return f"label={self.label[:1].tolist()[0]!r}, p={self.class_proba[0].max():.4g}"

    def _winner(self) -> np.ndarray:
        return self.class_proba.argmax(axis=1)


class BinaryPrediction(_ClassPrediction):
    """`proba` is the probability of classes[1], the positive one."""

    @property
    def class_proba(self) -> np.ndarray:
        return np.column_stack([1 - self.proba, self.proba])

    def log_density(self, y: ArrayLike) -> np.ndarray:
        density = super().log_density(y)
        # Near 1, `proba` has lost the digits of the other class's probability: a latent of 40 would count as endless.
        # The latent knows them, and is believed as far as `proba` can have been rounded.
        rounded = (self.positions(y) == 0) & (self.proba > 1 - 1e-9)
        if rounded.any():
            lost, one = 1 - self.proba[rounded], np.ones(rounded.sum())
            low, high = (np.log(np.maximum(lost + side * _HALF_A_BIT, _LEAST)) for side in (-1, 1))
            other = log_binomial_average(0 * one, one, self.latent_mean[rounded], self.latent_std[rounded])
            density[rounded] = np.fmax(np.fmin(other, high), low)  # high, if there is no latent
        return density

    def _winner(self) -> np.ndarray:
        return (self.proba >= 0.5).astype(int)

    def _curve(self) -> np.ndarray:
        return self.proba

    def _linked(self, f: np.ndarray) -> np.ndarray:
        return special.expit(f)


class MulticlassPrediction(_ClassPrediction):
    """`proba` has one column for each class, and so have the latent moments."""

    @classmethod
    def of_latents(cls, labels: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Said) -> Self:
        """A latent function for each class."""
        return cls._made(labels, mean, std, said)

    @property
    def class_proba(self) -> np.ndarray:
        return self.proba

    def band(self) -> tuple[np.ndarray, None, None]:
        return self.proba, None, None
