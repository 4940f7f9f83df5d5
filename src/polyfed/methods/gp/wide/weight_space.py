"""pfed-hier for wide inputs, such as features of images: shared functions of the principal components of the federation.

f_c(x) = V'φ(x) + V_c'φ(x), where V is one for all clients and V_c each client's own (gp/weight_space.py). Rounds go through
three stages, by what the server's state has in it:

* the first `passes` find the principal components of all inputs (gp/components.py);
* then φ are the scores along these and a constant. Clients send the change of their evidence of V, as in pfed_hier.py,
  and the moments of V_c; the server has B of both in closed form, by EM;
* after `linear_rounds` the function is bent: φ gets features of the outputs z = E[V]'φ too (`curved`). At the rows that V
  was learned from, z would know their labels; so a client computes it there from what the *others* know, and keeps it.

The server has nothing by client but which have received the components, which do not change any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, DataError
from polyfed.gp import Evidence, Rows, infer, predict_latents
from polyfed.gp.components import Products, basis_of, first_basis, leading
from polyfed.gp.meanfield import Posterior
from polyfed.gp.weight_model import WeightModel
from polyfed.gp.weight_space import N_POINTS, Weights, learned, renewed, wider
from polyfed.methods.base import Explanation, Method, Predictor
from polyfed.methods.gp.evidence_limits import checked, limits_of, objection_to_products, objection_to_weights
from polyfed.methods.gp.model import PREDICTION_STEPS, PREDICTION_TOLERANCE, GPModel, clamped, prepared_rows
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.states import Marginal, Moments
from polyfed.methods.gp.wide.weight_features import Features, model_of
from polyfed.methods.gp.wide.weight_states import Broadcast, Client, Curve, Sent, Served, Server
from polyfed.methods.messages import NOTHING, PREPARING, ClientUpdate, State, client_key
from polyfed.modelling.memory import exact_bytes, holds
from polyfed.modelling.rows import read_out
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

if TYPE_CHECKING:
    from polyfed.methods.gp.pfed_hier import PFedHier

WIDEST = 808  # weights of the shared function: their triangle is a message of 2.6 MB
WIDEST_CURVE = 320  # of these, what a curved part may have
MATRICES = 8  # of all weights by all weights, at once
MOST_COMPONENTS, FEWEST_COMPONENTS = 384, 8
NOISE = 0.3  # to start from, where it has a closed form: nothing is explained yet
BENT = 0.3  # variance of a curved feature's weight to start from
PERSONAL, PERSONAL_AFTER = 0.05, 5  # variance of weights of the personal part to start from; rounds until it is learned
# Of rows: sums of a single one are that row, so its client sends zeros, and sees it through the others' components.
FEWEST = 2
EM_STEPS, EM_TOLERANCE = 4, 0.01  # of the server in a round: fewer steps once B hardly moves
ADAM = Adam({"noise": 0.1})  # for noises without a closed form


@dataclass(frozen=True)
class WeightSpace(Method):
    """With the options of the method that makes it (methods/gp/pfed_hier.py)."""

    options: PFedHier

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        model = model_of(spec.codecs, self.options.bound)
        T = sum(model.prior.outputs.values())
        wanted = self._n_components(T)
        eye = torch.eye(T, dtype=torch.float64)
        noise: State = {}
        for task, likelihood in model.likelihoods.items():
            if likelihood.initial_noise is not None:
                start = NOISE if likelihood.closed_form_noise else likelihood.initial_noise
                noise[task] = torch.tensor(start, dtype=torch.float64).log()
        return Server(
            shared=torch.stack([eye, eye, BENT * eye]),
            personal=(PERSONAL if self.options.n_personal else 0.0) * torch.stack([eye, eye]),
            noise=noise,
            basis=first_basis(spec.n_features, wanted, torch.Generator().manual_seed(stream.integer())),
            wanted=torch.tensor(wanted),
            passes=torch.tensor(0),
            rounds=torch.tensor(0),
            received=torch.zeros(0, dtype=torch.int64),
            positions={task: torch.tensor(i) for i, task in enumerate(model.likelihoods)},
            optimiser=ADAM.start(named({task: noise[task] for task in stepped(model)})),
            limits=limits_of(model),
        ).to_arrays()

    def _n_components(self, T: int) -> int:
        """As many as were asked for, or as messages of a sane size allow."""
        wanted = self.options.n_components
        if wanted is None:
            further = 1 + (T * N_POINTS if self._bends(T) else 0)
            wanted = max(FEWEST_COMPONENTS, min(MOST_COMPONENTS, WIDEST // T - further))
        if not holds(MATRICES * 8.0 * (T * (wanted + 1 + T * N_POINTS)) ** 2):
            what = f"{wanted} components for {T} outputs, and memory does not hold the precision of their weights"
            raise ConfigError(what, remedy="set fewer n_components")
        return wanted

    def _bends(self, T: int) -> bool:
        """Of many outputs, functions of all of them would have too many weights."""
        return T * T * N_POINTS <= WIDEST_CURVE

    def broadcast(self, server: State, client: str) -> State:
        known = Server.from_arrays(server)
        if known.basis is not None:
            return Broadcast(basis=known.basis).to_arrays()
        received = bool((known.received == client_key(client)).any())
        served = Served.from_arrays(server)
        return (replace(served, components=None) if received else served).to_arrays()

    def prediction_state(self, server: State, client: str) -> State:
        return Served.from_arrays(server).to_arrays()

    def template(self, server: State) -> ClientUpdate:
        known = Server.from_arrays(server)
        counts = dict.fromkeys(sorted(known.positions, key=lambda task: int(known.positions[task])), 0)
        if known.basis is not None:
            nothing = Products.of(known.basis.new_zeros(0, len(known.basis)), known.basis)
            return ClientUpdate(Sent(nothing).to_arrays(), counts=counts, metrics={PREPARING: 1.0})
        outputs = known.shared.new_zeros(3, known.shared.shape[-1]) if known.curve is None else None
        assert known.sums is not None
        arrays = Sent(change=known.sums, moments=known.personal, outputs=outputs, noise=_stepped(known)).to_arrays()
        pooled = {f"noise.{task}": NOTHING for task in known.noise if task not in _stepped(known)}
        return ClientUpdate(arrays, pooled, counts=counts, metrics={"bound": 0.0})

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return [name.removeprefix("noise.")]

    def is_evidence(self, name: str) -> bool:
        return Sent.field_of(name) in ("products", "change", "outputs")

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        known, sent = Server.from_arrays(server), Sent.from_arrays(update.arrays)
        if known.basis is not None and sent.products is not None:
            return objection_to_products(sent.products, sum(update.counts.values()), known.basis)
        sizes = torch.tensor(self._features(known).personal_sizes, dtype=torch.float64)
        return objection_to_weights(known, sent, update.counts, sizes)

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        known, ordered = Server.from_arrays(server), [updates[client] for client in sorted(updates)]
        sent = [Sent.from_arrays(update.arrays) for update in ordered]
        if known.basis is not None:
            return self._sought(known, known.basis, sent).to_arrays()
        assert known.sums is not None
        features = self._features(known)
        change = Evidence.stack([one.change for one in sent])
        sums = checked(known.sums + Evidence(change.triangle.sum(0), change.shift.sum(0)))
        shared = learned(features.shared(known.shared), sums, EM_STEPS, EM_TOLERANCE).B
        rounds, personal = int(known.rounds) + 1, known.personal
        informed = [one.moments for one, update in zip(sent, ordered, strict=True) if any(update.counts.values())]
        if rounds > PERSONAL_AFTER and any(features.personal_sizes) and informed:  # others know the prior alone
            personal = renewed(features.personal(personal), torch.stack(informed).sum(0), len(informed)).B
        noise, memory = self._noise(known, ordered, sent)
        keys = torch.tensor([client_key(client) for client in sorted(updates)], dtype=torch.int64)
        after = replace(
            known,
            shared=shared,
            personal=personal,
            sums=sums,
            noise=noise,
            optimiser=memory,
            rounds=torch.tensor(rounds),
            received=torch.cat([known.received, keys]).unique(),
        )
        if rounds == self.options.linear_rounds and self._bends(features.n_outputs) and not features.is_bent:
            outputs = torch.stack([one.outputs for one in sent if one.outputs is not None]).sum(0)
            after = self._bent(after, sums, features, outputs)
        return after.to_arrays()

    def _sought(self, server: Server, Q: Tensor, sent: Sequence[Sent]) -> Server:
        """The next basis, or the components after the last pass."""
        each = [one.products for one in sent if one.products is not None]
        sums, passes = sum(each[1:], each[0]), int(server.passes) + 1
        after = replace(server, passes=torch.tensor(passes))
        if passes < self.options.passes:
            Y = sums.scatter(Q)
            return replace(after, basis=basis_of(Y) if bool(Y.any()) else Q)
        found = leading(sums, Q, int(server.wanted))
        nothing = Evidence.none(server.shared.shape[-1] * (found.directions.shape[1] + 1))
        return replace(after, basis=None, components=found, sums=nothing)

    def _bent(self, server: Server, sums: Evidence, features: Features, outputs: Tensor) -> Server:
        """With what curved features are made of from now on, and room for their evidence."""
        first, second, n = outputs
        mean = first / n.clamp_min(1.0)
        spread = (second / n.clamp_min(1.0) - mean.square()).clamp_min(0.0).sqrt()
        V, T = Weights(features.shared(server.shared), sums).V, features.n_outputs
        curve = Curve(V, mean, torch.where(spread > 1e-6, spread, 1.0))
        return replace(server, curve=curve, sums=wider(sums, T, features.n_features + T * N_POINTS))

    def _noise(self, server: Server, updates: Sequence[ClientUpdate], sent: Sequence[Sent]) -> tuple[State, Moments]:
        """Pooled over the labels of all clients where it has a closed form, else a step along the average gradient."""
        moved = named(server.noise)
        for name in updates[0].pooled:
            total, count = (torch.stack([update.pooled[name][i] for update in updates]).sum() for i in (0, 1))
            if count > 0:
                moved[name] = (total / count).log()
        stepped = _stepped(server)
        gradient = {task: torch.stack([one.noise[task] for one in sent]).mean(0) for task in stepped}
        values, memory = ADAM.step(named(stepped), named(gradient), server.optimiser)
        return {name.removeprefix("noise."): value for name, value in clamped(moved | values).items()}, memory

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
        model, rows, features = model_of(data.codecs, self.options.bound), self._rows(data), self._features(received)
        linear = features.linear(rows.x) if own.scores is None else own.scores
        problem, outputs = self._problem(model, rows, linear, received, own, features)
        with torch.no_grad():
            start = None if own.warm is None else problem.rows.as_f(own.warm, back=True)
            found = infer(problem, start=start, tolerance=self.options.tolerance, max_steps=self.options.mf_steps)
            old = self._own(own, features)
            change, moments = (problem.evidence(found.q) - old) * self.options.damping, problem.moments(found.q)
        sums = None
        if not features.is_bent:
            sums = torch.stack([some.sum(0) for some in (outputs, outputs.square(), torch.ones_like(outputs))])
        gradient = self._noise_gradient(model, problem, found.marginals)
        after = Client(old + change, Marginal(*problem.rows.as_f(found.marginals)), outputs, linear)
        pooled = problem.rows.noise_statistics(problem.prior, *found.marginals)
        return after.to_arrays(), ClientUpdate(
            Sent(change=change, moments=moments, outputs=sums, noise=gradient).to_arrays(),
            {name: pooled.get(name.removeprefix("noise."), NOTHING) for name in model.closed_form_noise},
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
        sums = received.sums or Evidence.none(features.n_outputs)  # nobody has said a word yet
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
        model, features = model_of(data.codecs, self.options.bound), self._features(known)
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
        return Features.of(known, personal=self.options.n_personal > 0)

    def _own(self, own: Client, features: Features) -> Evidence:
        """What of the sums is a client's own."""
        if own.evidence is None:
            return Evidence.none(features.n_outputs * features.n_features)
        return wider(own.evidence, features.n_outputs, features.n_features)

    def _rows(self, data: ClientData) -> Rows:
        rows = prepared_rows(data, model_of(data.codecs, self.options.bound).likelihoods)
        if not holds(exact_bytes(len(rows), 1)):
            raise DataError(
                f"{len(rows):,} labels, and memory does not hold their covariance",
                where="the client's labels",
                remedy="set `wide` above the number of features, and projection or inducing with the method 'pfed-mul'",
            )
        return rows

    def explain(self, server: State, data: ClientData) -> Explanation:
        """How the tasks go together along the components, and their noise."""
        model, known = model_of(data.codecs, self.options.bound), Served.from_arrays(server)
        W = torch.linalg.cholesky(known.shared[0]).split(list(model.prior.outputs.values()))
        mixing = {f"mixing.{task}": rows for task, rows in zip(model.prior.outputs, W, strict=True)}
        values = {**model.prior.state(), **mixing, **named(known.noise)}
        return model.explain(values, ("kernels", "mixing", "noise"), data.codecs)


def _stepped(server: Server) -> State:
    """The noises that have no closed form, by task."""
    return {task: value for task, value in sorted(server.noise.items()) if f"noise.{task}" in server.optimiser.first}


def named(noise: State) -> State:
    return {f"noise.{task}": value for task, value in noise.items()}


def stepped(model: GPModel) -> list[str]:
    """Tasks with a noise that has no closed form."""
    noisy = {task: likelihood for task, likelihood in model.likelihoods.items() if likelihood.initial_noise}
    return [task for task, likelihood in noisy.items() if not likelihood.closed_form_noise]
