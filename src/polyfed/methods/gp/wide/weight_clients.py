"""What clients do with functions of principal components, and the options of the method (methods/gp/wide/weight_space.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.errors import DataError
from polyfed.gp import Evidence, Rows, infer, predict_latents
from polyfed.gp.weight_model import WeightModel
from polyfed.gp.weight_space import Weights, wider
from polyfed.methods.base import Method, Predictor
from polyfed.methods.gp.model import PREDICTION_STEPS, PREDICTION_TOLERANCE, GPModel, prepared_rows
from polyfed.methods.gp.wide import component_rounds
from polyfed.methods.gp.wide.weight_features import SHARED, SUMS, Features, model_of
from polyfed.methods.messages import PREPARING, ClientUpdate, State, strip_prefix, with_prefix
from polyfed.modelling.memory import exact_bytes, holds
from polyfed.modelling.readout import read_out
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

OWN, PERSONAL, MOMENTS, OUTPUTS, SCORES = "own", "coregionalisation/personal", "moments", "outputs", "scores"


@dataclass(frozen=True)
class WeightClients(Method):
    """The options are those of methods/gp/by_width.py, which makes it."""

    name: ClassVar[str] = "pfed-hier"
    summary: ClassVar[str] = "shared functions of principal components, and a personal part"

    n_components: int | None = None
    passes: int = 4
    linear_rounds: int = 10
    personal_start: float = 0.05
    personal_after: int = 5
    bound: str = "gaussian"
    damping: float = 1.0
    mf_steps: int = 2
    tolerance: float = 1e-6

    @property
    def takes_weights(self) -> bool:
        return True

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        counts = data.counts()
        if "basis" in message:
            Q = message["basis"]
            self._check_inputs(data, len(Q))
            arrays = component_rounds.sent(torch.from_numpy(data.x), Q)
            return state, ClientUpdate(arrays, {}, float(data.n_labels), counts, {PREPARING: 1.0})
        model, rows = model_of(data.codecs, self.bound), self._rows(data)
        features = self._features(message)
        linear = state[SCORES] if SCORES in state else features.linear(rows.x)
        problem, outputs = self._problem(model, rows, linear, message, state, features)
        with torch.no_grad():
            start = problem.rows.as_f((state["warm/m"], state["warm/v"]), back=True) if "warm/m" in state else None
            found = infer(problem, start=start, tolerance=self.tolerance, max_steps=self.mf_steps)
            new, old = problem.evidence(found.q), self._own(state, features)
            change = (new - old) * self.damping
            arrays = with_prefix(SUMS, change.arrays) | {MOMENTS: problem.moments(found.q)}
        arrays |= self._noise_gradient(model, problem, found.marginals)
        if not features.is_bent:
            arrays[OUTPUTS] = torch.stack(
                [some.sum(0) for some in (outputs, outputs.square(), torch.ones_like(outputs))]
            )
        m, v = problem.rows.as_f(found.marginals)
        after = with_prefix(OWN, (old + change).arrays) | {"warm/m": m, "warm/v": v, OUTPUTS: outputs, SCORES: linear}
        pooled = problem.rows.noise_statistics(problem.prior, *found.marginals)
        nobody = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        noises = [name.removeprefix("noise.") for name in model.closed_form_noise]
        return after, ClientUpdate(
            arrays,
            {f"noise.{task}": pooled.get(task, nobody) for task in noises},
            float(data.n_labels),
            counts,
            {"bound": found.bound},
        )

    def _noise_gradient(self, model: GPModel, problem: WeightModel, marginals: tuple[Tensor, Tensor]) -> State:
        """Of the bound, by the logarithm of each noise that has no closed form."""
        leaves = {f"noise.{task}": problem.prior.parameters[f"noise.{task}"] for task in stepped(model)}
        local = problem.rows.local_bound(problem.prior, *marginals)
        if not leaves or not local.requires_grad:  # no label of such a task
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(local, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def _problem(
        self, model: GPModel, rows: Rows, linear: Tensor, received: State, state: State, features: Features
    ) -> tuple[WeightModel, Tensor]:
        """A client's rows under what the others know; and what these make of its inputs, without its own labels."""
        prior = model.prior.with_values({**model.prior.state(), **named(strip_prefix(received, "noise"))})
        with torch.no_grad():
            others = wider(sums_of(received), features.n_outputs, features.n_features) - self._own(state, features)
            shared = Weights(features.shared(received[SHARED]), others)
            kept = state.get(OUTPUTS) if features.is_bent else linear @ shared.V.mT
            phi = features.at_rows(linear, kept)
            outputs = features.outputs(linear) if kept is None else kept
            personal = features.personal(received[PERSONAL])
            return WeightModel(prior, rows, phi, shared, personal, features, features.unseen), outputs

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """With no state at all, the shared functions alone: the sums may hold this client's labels already."""
        model, features = model_of(data.codecs, self.bound), self._features(server)
        rows = self._rows(data if state is not None else ClientData(data.x[:0], {}, data.codecs))
        known = with_prefix(SUMS, Evidence.none(features.n_outputs).arrays) | server  # before anybody has said a word
        posterior: list[Any] = []

        def predict(x: np.ndarray) -> Predictions:
            if not posterior:
                linear = features.linear(rows.x)
                problem, _ = self._problem(model, rows, linear, known, state or {}, features)
                with torch.no_grad():
                    found = infer(problem, tolerance=PREDICTION_TOLERANCE, max_steps=PREDICTION_STEPS)
                posterior.extend([problem, found.q])
            problem, q = posterior
            return read_out(
                predict_latents(problem, q, torch.from_numpy(x)), problem.prior, model.likelihoods, data.codecs
            )

        return predict

    def untrained(self, data: ClientData) -> State | None:
        return {}  # its labels are in no sum: the model may see them

    def _features(self, known: State) -> Features:
        return Features.of(known, personal=self.personal_start > 0)

    def _own(self, state: State, features: Features) -> Evidence:
        """What of the sums is a client's own."""
        if f"{OWN}/shift" not in state:
            return Evidence.none(features.n_outputs * features.n_features)
        return wider(Evidence(**strip_prefix(state, OWN)), features.n_outputs, features.n_features)

    def _rows(self, data: ClientData) -> Rows:
        rows = prepared_rows(data, model_of(data.codecs, self.bound).likelihoods)
        if not holds(exact_bytes(len(rows), 1)):
            raise DataError(
                f"{len(rows):,} labels, and memory does not hold their covariance",
                where="the client's labels",
                remedy="set `wide` above the number of features, and projection or inducing with the method 'pfed-mul'",
            )
        return rows

    def _check_inputs(self, data: ClientData, n_features: int) -> None:
        if data.n_features != n_features:
            raise DataError(
                f"{data.n_features} features, and the federation agreed on {n_features}",
                where="the client's inputs",
                remedy="give the features that the federation agreed on",
            )


def sums_of(received: Mapping[str, Tensor]) -> Evidence:
    return Evidence(**strip_prefix(received, SUMS))


def named(noise: State) -> State:
    return {f"noise.{task}": value for task, value in noise.items()}


def stepped(model: GPModel) -> list[str]:
    """Tasks with a noise that has no closed form."""
    noisy = {task: likelihood for task, likelihood in model.likelihoods.items() if likelihood.initial_noise}
    return [task for task, likelihood in noisy.items() if not likelihood.closed_form_noise]
