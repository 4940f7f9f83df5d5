"""What all predictions have in common, and the table of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from polyfed.data import LabelCodec

REACH = 1.96  # standard deviations on each side hold 95 %


Said = Mapping[str, np.ndarray]  # what a likelihood says of y, by name


class Prediction(ABC):
    """The base of all: every field is a float64 array with one entry for each row (and class) predicted."""

    latent_mean: np.ndarray
    latent_std: np.ndarray

    def __post_init__(self) -> None:
        shape = np.atleast_1d(as_floats(self.latent_mean)).shape
        for name in (field.name for field in fields(self)):  # pyright: ignore[reportArgumentType]
            value = getattr(self, name)
            value = tuple(value) if name == "classes" else np.broadcast_to(as_floats(value), shape).copy()
            object.__setattr__(self, name, value)  # frozen for users, not for their construction

    @classmethod
    def of_latents(cls, labels: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Said) -> Self:
        """From the moments of the latent functions, (N, outputs) and coded, and what a likelihood says of y, by name.

        As it is, a task has one latent function without units, and all other fields are said by the likelihood.
        """
        return cls._made(labels, mean[:, 0], std[:, 0], said)

    @classmethod
    def _made(cls, labels: LabelCodec, mean: np.ndarray, std: np.ndarray, said: Said) -> Self:
        known: dict[str, Any] = {**said, "classes": labels.classes or (), "latent_mean": mean, "latent_std": std}
        return cls(**{field.name: known[field.name] for field in fields(cls)})  # pyright: ignore[reportArgumentType]

    def __len__(self) -> int:
        return len(self.latent_mean)

    def take(self, rows: np.ndarray | slice) -> Self:
        """The predictions of some rows, by position."""
        names = [field.name for field in fields(self) if field.name != "classes"]  # pyright: ignore[reportArgumentType]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        first = f", first: {self._first()}" if len(self) else ""
        return f"{type(self).__name__}(n={len(self)}{first})"

    def band(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """What is expected, and the 95 % band of it; a column for each curve: the mean, or the probability of each class.

        How sure a model is apart from the noise of single labels. Of two classes the second has the only curve. Several
        classes have no band, and neither has a model that does not know how sure it is.

        >>> from polyfed.predictions import BinaryPrediction, RegressionPrediction
        >>> RegressionPrediction([70.0], [2.0], [9.0]).band()          # the noise is no part of it
        (array([[70.]]), array([[66.08]]), array([[73.92]]))
        >>> mean, lower, upper = BinaryPrediction([0.5], ("no", "yes"), [0.0], [1.0]).band()
        >>> mean, lower                                               # the probability of yes
        (array([[0.5]]), array([[0.1235]]))
        """
        mean, reach = self._curve()[:, None], REACH * self.latent_std
        if not np.isfinite(reach).all() or not reach.any():
            return mean, None, None
        return mean, self._linked(self.latent_mean - reach)[:, None], self._linked(self.latent_mean + reach)[:, None]

    def _curve(self) -> np.ndarray:
        return self.mean  # pyright: ignore[reportAttributeAccessIssue]  # classes have none, and a curve of their own

    def _linked(self, f: np.ndarray) -> np.ndarray:
        """What is expected where the latent function is f."""
        return f

    @abstractmethod
    def columns(self) -> dict[str, np.ndarray]:
        """What a user wants to see of it, as the columns of a table."""

    @abstractmethod
    def log_density(self, y: ArrayLike) -> np.ndarray:
        """The log density of each observed label (of a discrete one, the log probability), the latent averaged out."""

    @abstractmethod
    def _first(self) -> str:
        """The first row, for the repr."""


class Predictions(dict[str, Any]):
    """The predictions of all tasks, by name and in order.

    >>> from polyfed.predictions import RegressionPrediction
    >>> pulse = RegressionPrediction([70.0], [3.0], [4.0])
    >>> Predictions({"pulse": pulse}).to_frame().columns.tolist()
    ['pulse.mean', 'pulse.std', 'pulse.lower', 'pulse.upper']
    """

    def __missing__(self, task: str) -> Any:
        raise UnknownNameError(f"there is no prediction of task {task!r}", remedy=nearest(task, self))

    def __repr__(self) -> str:
        return f"Predictions({', '.join(f'{task}: {prediction!r}' for task, prediction in self.items())})"

    def to_frame(self) -> pd.DataFrame:
        """A pandas table of the columns of all tasks, named "task.column"."""
        import pandas  # here, because it is slow to import and most users never get here

        tables = {task: prediction.columns() for task, prediction in self.items()}
        columns = {f"{t}.{name}": column for t, table in tables.items() for name, column in table.items()}
        return pandas.DataFrame(columns)


def as_floats(value: Any) -> np.ndarray:
    """Numbers of any library as a float64 array."""
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=np.float64)
