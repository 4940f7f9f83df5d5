"""Rows as rivals see them: features, of pooled rows whose each is, and labels.

>>> x = Inputs.of(np.array([[0.5, 3.0], [0.1, 3.0], [0.2, 7.0]]), named=True)
>>> known = Clients.of(x)
>>> known.positions(Inputs.of(np.array([[0.0, 7.0], [0.0, 8.0]]), named=True))
array([ 1., nan])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MOST = 250  # scikit-learn's trees take 255 categories; clients beyond these, the smallest, are one category


@dataclass(frozen=True, eq=False)
class Inputs:
    """Encoded features (n, D), and the position of each row's client, or None where there is one client alone."""

    features: np.ndarray
    client: np.ndarray | None

    @classmethod
    def of(cls, x: np.ndarray, *, named: bool) -> Inputs:
        """With `named`, the last column is the client's position."""
        return cls(x[:, :-1], x[:, -1]) if named else cls(x, None)

    def take(self, rows: np.ndarray) -> Inputs:
        return Inputs(self.features[rows], None if self.client is None else self.client[rows])

    def __len__(self) -> int:
        return len(self.features)


Predicted = Callable[[Inputs], np.ndarray]  # probabilities of classes, or rates, at new inputs
Numbers = Callable[[Inputs], tuple[np.ndarray, np.ndarray | None]]  # mean and, if the model has one, standard deviation


@dataclass(frozen=True, eq=False)
class Labelled:
    """Coded labels y at x, their weights, None if all count alike, and the seed of what is learned from them."""

    x: Inputs
    y: np.ndarray
    weights: np.ndarray | None
    seed: int

    def take(self, rows: np.ndarray) -> Labelled:
        return Labelled(
            self.x.take(rows), self.y[rows], None if self.weights is None else self.weights[rows], self.seed
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counted(self) -> np.ndarray:
        return np.ones(len(self)) if self.weights is None else self.weights


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients that training rows are of, in order; others are not known."""

    known: np.ndarray

    @classmethod
    def of(cls, x: Inputs) -> Clients:
        values, sizes = np.unique(np.zeros(0) if x.client is None else x.client, return_counts=True)
        return cls(np.sort(values[np.argsort(-sizes, kind="stable")[:MOST]]))

    def positions(self, x: Inputs) -> np.ndarray:
        """Of each row's client among those known, NaN for others."""
        if x.client is None or not len(self.known):
            return np.full(len(x), np.nan)
        at = np.minimum(np.searchsorted(self.known, x.client), len(self.known) - 1)
        return np.where(self.known[at] == x.client, at.astype(float), np.nan)

    def one_hot(self, x: Inputs) -> np.ndarray:
        """(n, clients), a row of zeros for a client that is not known."""
        return (self.positions(x)[:, None] == np.arange(len(self.known))).astype(float)
