"""What a score is worth: the same from a guess that costs nothing, and the skill of a model against it.

The guess knows the training labels of one client and no input: their mean, their most frequent class, the frequencies of
their classes. Skill is the share of the guess's error that a model removes (Murphy: "Skill Scores Based on the Mean Square
Error and Their Relationships to the Correlation Coefficient", Monthly Weather Review 1988,
doi:10.1175/1520-0493(1988)116<2417:SSBOTM>2.0.CO;2; of classes, the Brier skill score): 1 is perfect, 0 is no better than
guessing, below 0 is worse.

>>> guess = Guess.of("regression", [60.0, 80.0])
>>> guess.headline([70.0, 74.0])                           # the rmse of predicting 70
2.8284
>>> guess.skill({"rmse": 1.0}, [70.0, 74.0])               # 1 - 1 / 8
0.875
>>> Guess.of("binary", [0, 0, 0, 1], n_classes=2).headline([0, 0, 1, 1])
0.5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfed.metrics.classes import accuracy, brier
from polyfed.metrics.regression import rmse


@dataclass(frozen=True, eq=False)
class Guess:
    """A number, or the probabilities of classes, that is guessed for every row alike."""

    value: float | np.ndarray

    @classmethod
    def of(cls, kind: str, y: Any, *, n_classes: int | None = None, agreed: float | None = None) -> Guess | None:
        """The guess of who has these training labels (numbers, pairs, or positions of classes); None if they say nothing.

        A client without labels guesses the mean of all clients, if they have `agreed` on it.
        """
        y = np.asarray(y, dtype=np.float64)
        if n_classes is not None:
            # One more observation, shared by all classes: what was never seen here is unlikely, not impossible.
            count = np.bincount(y.astype(np.intp), minlength=n_classes)
            return cls((count + 1 / n_classes) / (len(y) + 1))
        if len(y) == 0:
            return None if agreed is None else cls(float(agreed))
        return cls(float(y[:, 0].sum() / y[:, 1].sum() if y.ndim == 2 else y.mean()))

    def headline(self, y: Any) -> float:
        """The metric that is shown first: the accuracy of the most frequent class, or the rmse of the mean."""
        y = np.asarray(y)
        if isinstance(self.value, np.ndarray):
            return accuracy(np.full(len(y), self.value.argmax()), y)
        return rmse(np.full(len(y), self.value), observed(y))

    def skill(self, scores: Mapping[str, float], y: Any) -> float | None:
        """Of a model with these scores on the same labels; None where the guess makes no error at all."""
        y = np.asarray(y)
        if isinstance(self.value, np.ndarray):
            mine, guessed = scores["brier"], brier(np.tile(self.value, (len(y), 1)), y)
        else:
            of_guess = self.headline(y)  # products: a power would raise where this is endless
            mine, guessed = scores["rmse"] * scores["rmse"], of_guess * of_guess
        return float(1 - mine / guessed) if guessed > 0 else None


def observed(y: Any) -> Any:
    """Labels as numbers: those that are pairs, as the share of successes."""
    return y[:, 0] / y[:, 1] if np.ndim(y) == 2 else y
