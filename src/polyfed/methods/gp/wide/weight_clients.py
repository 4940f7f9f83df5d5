"""What clients do with functions of principal components, and the options of the method (methods/gp/wide/weight_space.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.errors import DataError
from polyfed.gp import Evidence, Rows, infer, predict_latents
from polyfed.gp.components import Products
from polyfed.gp.meanfield import Posterior
from polyfed.gp.weight_space import WeightModel, Weights, wider
from polyfed.methods.base import Method, Predictor
from polyfed.methods.gp.model import PREDICTION_STEPS, PREDICTION_TOLERANCE, GPModel, prepared_rows
from polyfed.methods.gp.states import Marginal
from polyfed.methods.gp.wide.weight_features import Features, model_of
from polyfed.methods.gp.wide.weight_states import Broadcast, Client, Sent, Served
from polyfed.methods.messages import PREPARING, ClientUpdate, State
from polyfed.modelling.memory import exact_bytes, holds
from polyfed.modelling.rows import read_out
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

FEWEST = (
    2  # rows: sums of a single one are that row, so its client sends zeros, and sees it through the others' components
)


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
        received, own = Broadcast.from_arrays(message), Client.from_arrays(state)
        weight, counts = float(data.n_labels), data.counts()
        if received.basis is not None:
            if data.n_features != len(received.basis):
                raise DataError(
                    f"{data.n_features} features, and the federation agreed on {len(received.basis)}",
                    where="the client's inputs",
                    remedy="give the features that the federation agreed on",
                )
            rows = data.x if len(data.x) >= FEWEST else data.x[:0]
            products = Products.of(torch.from_numpy(rows), received.basis)
            return state, ClientUpdate(Sent(products).to_arrays(), {}, weight, counts, {PREPARING: 1.0})
        model, rows, features = model_of(data.codecs, self.bound), self._rows(data), self._features(received)
        linear = features.linear(rows.x) if own.scores is None else own.scores
        problem, outputs = self._problem(model, rows, linear, received, own, features)
        with torch.no_grad():
            start = None if own.warm is None else problem.rows.as_f(own.warm, back=True)
            found = infer(problem, start=start, tolerance=self.tolerance, max_steps=self.mf_steps)
            old = self._own(own, features)
            change, moments = (problem.evidence(found.q) - old) * self.damping, problem.moments(found.q)
        sums = None
        if not features.is_bent:
            sums = torch.stack([some.sum(0) for some in (outputs, outputs.square(), torch.ones_like(outputs))])
        gradient = self._noise_gradient(model, problem, found.marginals)
        after = Client(old + change, Marginal(*problem.rows.as_f(found.marginals)), outputs, linear)
        pooled = problem.rows.noise_statistics(problem.prior, *found.marginals)
        nobody = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        return after.to_arrays(), ClientUpdate(
            Sent(change=change, moments=moments, outputs=sums, noise=gradient).to_arrays(),
            {name: pooled.get(name.removeprefix("noise."), nobody) for name in model.closed_form_noise},
            weight,
            counts,
            {"bound": found.bound},
        )

    def _noise_gradient(self, model: GPModel, problem: WeightModel, marginals: tuple[Tensor, Tensor]) -> State:
        """Of the bound, by the logarithm of each noise that has no closed form."""
        leaves = {task: problem.prior.parameters[f"noise.{task}"] for task in stepped(model)}
        local = problem.rows.local_bound(problem.prior, *marginals)
        if not leaves or not local.requires_grad:  # no label of such a task
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(local, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def _problem(
        self, model: GPModel, rows: Rows, linear: Tensor, received: Served, own: Client, features: Features
    ) -> tuple[WeightModel, Tensor]:
        """A client's rows under what the others know; and what these make of its inputs, without its own labels."""
        prior = model.prior.with_values({**model.prior.state(), **named(received.noise)})
        sums = (
            Evidence.none(features.n_outputs) if received.sums is None else received.sums
        )  # nobody has said a word yet
        with torch.no_grad():
            others = wider(sums, features.n_outputs, features.n_features) - self._own(own, features)
            shared = Weights(features.shared(received.shared), others)
            kept = own.outputs if features.is_bent else linear @ shared.V.mT
            outputs = features.outputs(linear) if kept is None else kept
            phi, personal = features.at_rows(linear, outputs), features.personal(received.personal)
            return WeightModel(prior, rows, phi, shared, personal, features, features.unseen), outputs

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """With no state at all, the shared functions alone: the sums may hold this client's labels already."""
        known, own = Served.from_arrays(server), Client.from_arrays(state or {})
        model, features = model_of(data.codecs, self.bound), self._features(known)
        rows = self._rows(data if state is not None else ClientData(data.x[:0], {}, data.codecs))

        @cache
        def posterior() -> tuple[WeightModel, Posterior]:
            problem, _ = self._problem(model, rows, features.linear(rows.x), known, own, features)
            with torch.no_grad():
                return problem, infer(problem, tolerance=PREDICTION_TOLERANCE, max_steps=PREDICTION_STEPS)

        def predict(x: np.ndarray) -> Predictions:
            problem, found = posterior()
            latents = predict_latents(problem, found.q, torch.from_numpy(x))
            return read_out(latents, problem.prior, model.likelihoods, data.codecs)

        return predict

    def untrained(self, data: ClientData) -> State | None:
        return {}  # its labels are in no sum: the model may see them

    def _features(self, known: Served) -> Features:
        return Features.of(known, personal=self.personal_start > 0)

    def _own(self, own: Client, features: Features) -> Evidence:
        """What of the sums is a client's own."""
        if own.evidence is None:
            return Evidence.none(features.n_outputs * features.n_features)
        return wider(own.evidence, features.n_outputs, features.n_features)

    def _rows(self, data: ClientData) -> Rows:
        rows = prepared_rows(data, model_of(data.codecs, self.bound).likelihoods)
        if not holds(exact_bytes(len(rows), 1)):
            raise DataError(
                f"{len(rows):,} labels, and memory does not hold their covariance",
                where="the client's labels",
                remedy="set `wide` above the number of features, and projection or inducing with the method 'pfed-mul'",
            )
        return rows


def named(noise: State) -> State:
    return {f"noise.{task}": value for task, value in noise.items()}


def stepped(model: GPModel) -> list[str]:
    """Tasks with a noise that has no closed form."""
    noisy = {task: likelihood for task, likelihood in model.likelihoods.items() if likelihood.initial_noise}
    return [task for task, likelihood in noisy.items() if not likelihood.closed_form_noise]
