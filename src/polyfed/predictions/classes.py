"""Predictions of classes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.predictions.base import Prediction


class _ClassPrediction(Prediction):
    classes: tuple[Any, ...]

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

    def columns(self) -> dict[str, np.ndarray]:
        """The label, and the probability of each class."""
        named = {f"p({label})": self.class_proba[:, i] for i, label in enumerate(self.classes)}
        return {"label": self.label, **named}

    def _first(self) -> str:
        return f"label={self.label[:1].tolist()[0]!r}, p={self.class_proba[0].max():.4g}"

    def _winner(self) -> np.ndarray:
        return self.class_proba.argmax(axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class BinaryPrediction(_ClassPrediction):
    """`proba` is the probability of classes[1], the positive one."""

    proba: np.ndarray
    classes: tuple[Any, ...]
    latent_mean: np.ndarray
    latent_std: np.ndarray

    @property
    def class_proba(self) -> np.ndarray:
        """One column for each class."""
        return np.column_stack([1 - self.proba, self.proba])

    def _winner(self) -> np.ndarray:
        return (self.proba >= 0.5).astype(int)


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassPrediction(_ClassPrediction):
    """`proba` has one column for each class, and so have the latent moments."""

    proba: np.ndarray
    classes: tuple[Any, ...]
    latent_mean: np.ndarray
    latent_std: np.ndarray

    @property
    def class_proba(self) -> np.ndarray:
        """One column for each class."""
        return self.proba
