"""What all rivals have in common: nothing is sent, nothing is learned from others, and rounds after the first change nothing.

A model of another library is no dictionary of arrays, so it is no state: it is fitted to the training data where it is asked
for, with the seed that the server drew, and kept as long as these data are.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, MissingExtraError
from polyfed.kinds import LabelForm, own_kinds
from polyfed.methods.base import Method, Predictor
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix
from polyfed.methods.rivals.reading import Inputs, Labelled, Numbers, Predicted, fit_task
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

_fitted: WeakKeyDictionary[ClientData, dict[tuple[Rival, int], Predictor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Rival(Method):
    """One model for each task, fitted once; subclasses say how numbers, classes and rates are learned."""

    kinds: ClassVar[tuple[str, ...] | None] = own_kinds(*LabelForm)

    @property
    def takes_weights(self) -> bool:
        return True

    @property
    def personalises(self) -> bool:
        return False  # there is one model, whoever asks for it

    @abstractmethod
    def fit_numbers(self, rows: Labelled) -> Numbers:
        """A model of real targets: mean and, if it has one, standard deviation of y at new inputs."""

    @abstractmethod
    def fit_classes(self, rows: Labelled) -> Predicted:
        """A model of classes 0, 1, ..., each of which occurs in y: their probabilities at new inputs."""

    def fit_rates(self, rows: Labelled) -> Predicted:
        """A model of counts: the expected one at new inputs."""
        raise NotImplementedError

    @classmethod
    def require(cls) -> None:
        """Complain if a library is missing; before anything is trained."""

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        self.require()
        for task in spec.tasks:
            if self.kinds is not None and task.kind not in self.kinds:
                raise ConfigError(
                    f"task {task.name!r} is of kind {task.kind!r}, which it does not serve",
                    where=f"method {self.name!r}",
                    remedy=f"leave the task out, or choose another method; it serves {', '.join(self.kinds)}",
                )
        seed = torch.tensor(stream.integer() % 2**31, dtype=torch.int64)
        return {"seed": seed, **with_prefix("task", {task.name: torch.zeros(()) for task in spec.tasks})}

    def broadcast(self, server: State, client: str) -> State:
        return {"seed": server["seed"]}

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        self._fit(data, int(message["seed"]))
        return state, ClientUpdate({}, weight=float(max(1, data.n_labels)), counts=data.counts())

    def template(self, server: State) -> ClientUpdate:
        return ClientUpdate({}, counts=dict.fromkeys(strip_prefix(server, "task"), 0))

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        return server

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        return self._fit(data, int(server["seed"]))

    def _fit(self, data: ClientData, seed: int) -> Predictor:
        models = _fitted.setdefault(data, {})
        if (self, seed) in models:
            return models[self, seed]
        x, nothing = Inputs.of(data.x, named=self.needs_client), (np.zeros(0, dtype=np.int64), np.zeros(0))
        by_task = {}
        for task, codec in data.codecs.items():
            at, y = data.labels.get(task, nothing)
            by_task[task] = fit_task(self, Labelled(x.take(at), y, data.weights.get(task), seed), codec)

        def predict(new: np.ndarray) -> Predictions:
            inputs = Inputs.of(new, named=self.needs_client)
            return Predictions({task: one(inputs) for task, one in by_task.items()})

        return models.setdefault((self, seed), predict)


def require(library: str, method: str) -> Any:
    """A library of the extra `rivals`, or how to get it."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(
            f"{library} is not installed", where=f"method {method!r}", remedy="pip install 'polyfed[rivals]'"
        ) from None


@contextmanager
def quietly() -> Iterator[None]:
    """Optimisers of other libraries warn where few labels say little; what they found is used all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
