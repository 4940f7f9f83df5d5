"""pfed-hier for wide inputs, such as features of images: shared functions of the principal components of the federation.

f_c(x) = V'φ(x) + V_c'φ(x), where V is one for all clients and V_c each client's own (gp/weight_space.py). Rounds go through
three stages, by what the server's state has in it:

* the first `passes` find the principal components of all inputs (methods/component_rounds.py);
* then φ are the scores along these and a constant. Clients send the change of their evidence of V, as in methods/pfed_hier.py,
  and the moments of V_c; the server has B of both in closed form, by EM;
* after `linear_rounds` the function is bent: φ gets features of the outputs z = E[V]'φ too (gp/curved.py). At the rows that V
  was learned from, z would know their labels; so a client computes it there from what the *others* know, and keeps it.

The server has nothing by client but who has been told the components, which do not change any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, DataError, NumericalError
from polyfed.estimators.memory import exact_bytes, holds
from polyfed.estimators.readout import read_out
from polyfed.gp import Evidence, Rows, infer, predict_latents
from polyfed.gp.components import basis_of, first_basis, leading
from polyfed.gp.curved import N_POINTS
from polyfed.gp.weight_model import WeightModel
from polyfed.gp.weight_space import Weights, learned, renewed, wider
from polyfed.methods import component_rounds, weight_limits
from polyfed.methods.base import Method, Predictor
from polyfed.methods.evidence_limits import is_evidence_of_someone, limits_of
from polyfed.methods.gp_model import PREDICTION_STEPS, PREDICTION_TOLERANCE, GPModel, clamped, prepared_rows
from polyfed.methods.messages import PREPARING, ClientUpdate, State, client_key, labelled, part
from polyfed.methods.optimiser import Adam
from polyfed.methods.weight_features import CURVE, SHARED, SUMS, Features, model_of
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

OWN, PERSONAL, MOMENTS, OUTPUTS, SCORES = "own", "coregionalisation/personal", "moments", "outputs", "scores"
WIDEST = 640  # weights of the shared function: their triangle is a message of 1.6 MB
MATRICES = 8  # of all weights by all weights, at once
MOST_COMPONENTS, FEWEST_COMPONENTS = 256, 8
NOISE = 0.3  # to start from, where it has a closed form: nothing is explained yet
BENT = 0.3  # variance of a curved feature's weight to start from
EM_STEPS, EM_TOLERANCE = 4, 0.01  # of the server in a round: fewer steps once B hardly moves
ADAM = Adam({"noise": 0.1})  # for noises without a closed form


@dataclass(frozen=True)
class WeightSpace(Method):
    """Made by methods/by_width.py, whose options these are."""

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

    # ---- the server ---------------------------------------------------------------------------------------

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        model = model_of(spec.codecs, self.bound)
        T = sum(model.prior.outputs.values())
        wanted = self._n_components(T)
        eye = torch.eye(T, dtype=torch.float64)
        server = {
            "basis": first_basis(spec.n_features, wanted, torch.Generator().manual_seed(stream.integer())),
            "wanted": torch.tensor(wanted),
            "passes": torch.tensor(0),
            "rounds": torch.tensor(0),
            "told": torch.zeros(0, dtype=torch.int64),
            SHARED: torch.stack([eye, eye, BENT * eye]),
            PERSONAL: self.personal_start * torch.stack([eye, eye]),
        }
        for i, (task, likelihood) in enumerate(model.likelihoods.items()):
            server[f"position/{task}"] = torch.tensor(i)  # storage does not keep the order of names
            if likelihood.initial_noise is not None:
                start = NOISE if likelihood.closed_form_noise else likelihood.initial_noise
                server[f"noise/{task}"] = torch.tensor(start, dtype=torch.float64).log()
        stepped = {f"noise.{task}": server[f"noise/{task}"] for task in self._stepped(model)}
        return server | labelled("adam", ADAM.start(stepped)) | labelled("limit", limits_of(model))

    def _n_components(self, T: int) -> int:
        """As many as were asked for, or as messages of a sane size allow."""
        wanted = self.n_components
        if wanted is None:
            further = 1 + (T * N_POINTS if self._bends(T) else 0)
            wanted = max(FEWEST_COMPONENTS, min(MOST_COMPONENTS, WIDEST // T - further))
        if not holds(MATRICES * 8.0 * (T * (wanted + 1 + T * N_POINTS)) ** 2):
            raise ConfigError(
                f"{wanted} components for {T} outputs, and memory does not hold the precision of their weights",
                remedy="set fewer n_components",
            )
        return wanted

    def _bends(self, T: int) -> bool:
        """Of many outputs, functions of all of them would have too many weights."""
        return T * T * N_POINTS <= WIDEST // 2

    def download(self, server: State, client: str) -> State:
        if "basis" in server:
            return {"basis": server["basis"]}
        told = bool((server["told"] == client_key(client)).any())
        wanted = (SUMS, "coregionalisation", "noise", CURVE, *(() if told else (component_rounds.COMPONENTS,)))
        return {name: value for name, value in server.items() if name.startswith(tuple(f"{w}/" for w in wanted))}

    def portion(self, server: State, client: str) -> State:
        own = ("basis", "wanted", "passes", "rounds", "told", "position/", "adam/", "limit/")
        return {name: value for name, value in server.items() if not name.startswith(own)}

    def template(self, server: State) -> ClientUpdate:
        counts = dict.fromkeys(_tasks(server), 0)
        if "basis" in server:
            return ClientUpdate(component_rounds.form(server["basis"]), counts=counts, metrics={PREPARING: 1.0})
        arrays = labelled(SUMS, part(server, SUMS)) | {MOMENTS: server[PERSONAL]}
        arrays |= {f"noise.{task}": server[f"noise/{task}"] for task in self._moved(server)}
        if f"{CURVE}/weights" not in server:
            arrays[OUTPUTS] = server[SHARED].new_zeros(3, server[SHARED].shape[-1])
        nothing = torch.zeros((), dtype=torch.float64)
        pooled = [task for task in part(server, "noise") if task not in self._moved(server)]
        return ClientUpdate(
            arrays,
            {f"noise.{task}": (nothing, nothing) for task in pooled},
            counts=counts,
            metrics={"bound": 0.0},
        )

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return [name.removeprefix("noise.")]

    def is_evidence(self, name: str) -> bool:
        return name.startswith((f"{SUMS}/", f"{component_rounds.PASSES}/")) or name == OUTPUTS

    def objection(self, server: State, update: ClientUpdate) -> str | None:
        if "basis" in server:
            return component_rounds.objection(update.arrays, server["basis"])
        if OUTPUTS in update.arrays and (reason := weight_limits.objection_to_outputs(update.arrays[OUTPUTS])):
            return reason
        most = weight_limits.precisions(part(server, "limit"), part(server, "noise"), update.counts)
        features = self._features(server)
        sizes = torch.tensor(features.personal_sizes, dtype=torch.float64)
        change = Evidence(**part(update.arrays, SUMS))
        return weight_limits.objection(most, _sums(server), change, server[PERSONAL], sizes, update.arrays[MOMENTS])

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        sent = [updates[client] for client in sorted(updates)]
        if "basis" in server:
            return self._sought(server, sent)
        features = self._features(server)
        after = dict(server)
        for name in labelled(SUMS, part(server, SUMS)):
            after[name] = server[name] + torch.stack([update.arrays[name] for update in sent]).sum(0)
        sums = _sums(after)
        if not is_evidence_of_someone(sums):  # each may be sound, and all together not
            raise NumericalError(
                "the evidence of all clients is no distribution of the shared functions",
                remedy="look for clients that send what is not theirs",
            )
        after[SHARED] = learned(features.shared(server[SHARED]), sums, EM_STEPS, EM_TOLERANCE).B
        rounds = int(server["rounds"]) + 1
        after["rounds"] = torch.tensor(rounds)
        if rounds > self.personal_after and any(features.personal_sizes):
            moments = torch.stack([update.arrays[MOMENTS] for update in sent]).sum(0)
            after[PERSONAL] = renewed(features.personal(server[PERSONAL]), moments, len(sent)).B
        after |= self._noise(server, sent)
        keys = torch.tensor([client_key(client) for client in sorted(updates)], dtype=torch.int64)
        after["told"] = torch.cat([server["told"], keys]).unique()
        if rounds == self.linear_rounds and self._bends(features.n_outputs) and not features.is_bent:
            after |= self._bent(after, features, torch.stack([update.arrays[OUTPUTS] for update in sent]).sum(0))
        return after

    def _sought(self, server: State, sent: Sequence[ClientUpdate]) -> State:
        """The next basis, or the components after the last pass."""
        sums, Q, passes = component_rounds.total(sent), server["basis"], int(server["passes"]) + 1
        after = server | {"passes": torch.tensor(passes)}
        if passes < self.passes:
            Y = sums.scatter(Q)
            return after | {"basis": basis_of(Y) if bool(Y.any()) else Q}
        del after["basis"]
        found = leading(sums, Q, int(server["wanted"]))
        T = server[SHARED].shape[-1]
        nothing = Evidence.none(T * (found.directions.shape[1] + 1))
        return after | component_rounds.stored(found) | labelled(SUMS, _arrays(nothing))

    def _bent(self, server: State, features: Features, outputs: Tensor) -> State:
        """What curved features are made of from now on, and room for their evidence."""
        first, second, n = outputs
        mean = first / n.clamp_min(1.0)
        spread = (second / n.clamp_min(1.0) - mean.square()).clamp_min(0.0).sqrt()
        V = Weights(features.shared(server[SHARED]), _sums(server)).V
        curve = {"weights": V, "mean": mean, "spread": torch.where(spread > 1e-6, spread, 1.0)}
        T = features.n_outputs
        sums = wider(_sums(server), T, features.n_features + T * N_POINTS)
        return labelled(CURVE, curve) | labelled(SUMS, _arrays(sums))

    def _noise(self, server: State, sent: Sequence[ClientUpdate]) -> State:
        """Pooled over the labels of all clients where it has a closed form, else a step along the average gradient."""
        moved: State = {}
        for name in sent[0].pooled:
            total, count = (torch.stack([update.pooled[name][i] for update in sent]).sum() for i in (0, 1))
            moved[name] = (total / count).log() if count > 0 else server[name.replace(".", "/", 1)]
        stepped = {f"noise.{task}": server[f"noise/{task}"] for task in self._moved(server)}
        gradient = {name: torch.stack([update.arrays[name] for update in sent]).mean(0) for name in stepped}
        values, memory = ADAM.step(stepped, gradient, part(server, "adam"))
        moved = clamped(moved | values)
        return {name.replace(".", "/", 1): value for name, value in moved.items()} | labelled("adam", memory)

    @staticmethod
    def _stepped(model: GPModel) -> list[str]:
        """Tasks with a noise that has no closed form."""
        noisy = {task: likelihood for task, likelihood in model.likelihoods.items() if likelihood.initial_noise}
        return [task for task, likelihood in noisy.items() if not likelihood.closed_form_noise]

    @staticmethod
    def _moved(server: State) -> list[str]:
        names = (name.removeprefix("adam/first.noise.") for name in server if name.startswith("adam/first."))
        return sorted(names)

    # ---- a client -----------------------------------------------------------------------------------------

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
            arrays = labelled(SUMS, _arrays(change)) | {MOMENTS: problem.moments(found.q)}
        arrays |= self._noise_gradient(model, problem, found.marginals)
        if not features.is_bent:
            arrays[OUTPUTS] = torch.stack(
                [some.sum(0) for some in (outputs, outputs.square(), torch.ones_like(outputs))]
            )
        m, v = problem.rows.as_f(found.marginals)
        after = labelled(OWN, _arrays(old + change)) | {"warm/m": m, "warm/v": v, OUTPUTS: outputs, SCORES: linear}
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
        leaves = {f"noise.{task}": problem.prior.parameters[f"noise.{task}"] for task in self._stepped(model)}
        local = problem.rows.local_bound(problem.prior, *marginals)
        if not leaves or not local.requires_grad:  # no label of such a task
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(local, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def _problem(
        self, model: GPModel, rows: Rows, linear: Tensor, told: State, state: State, features: Features
    ) -> tuple[WeightModel, Tensor]:
        """A client's rows under what the others know; and what these make of its inputs, without its own labels."""
        prior = model.prior.with_values({**model.prior.state(), **_named(part(told, "noise"))})
        with torch.no_grad():
            others = wider(_sums(told), features.n_outputs, features.n_features) - self._own(state, features)
            shared = Weights(features.shared(told[SHARED]), others)
            kept = state.get(OUTPUTS) if features.is_bent else linear @ shared.V.mT
            phi = features.at_rows(linear, kept)
            outputs = features.outputs(linear) if kept is None else kept
            personal = features.personal(told[PERSONAL])
            return WeightModel(prior, rows, phi, shared, personal, features), outputs

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """With no state at all, the shared functions alone: the sums may hold this client's labels already."""
        model, features = model_of(data.codecs, self.bound), self._features(server)
        rows = self._rows(data if state is not None else ClientData(data.x[:0], {}, data.codecs))
        known = labelled(SUMS, _arrays(Evidence.none(features.n_outputs))) | server  # before anybody has said a word
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

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """How the tasks go together along the components, and their noise."""
        model = model_of(data.codecs, self.bound)
        W = torch.linalg.cholesky(server[SHARED][0]).split(list(model.prior.outputs.values()))
        mixing = {f"mixing.{task}": rows for task, rows in zip(model.prior.outputs, W, strict=True)}
        values = {**model.prior.state(), **mixing, **_named(part(server, "noise"))}
        return model.explain(values, ("kernels", "mixing", "noise"), data.codecs)

    # ---- what both have -------------------------------------------------------------------------------------

    def _features(self, known: State) -> Features:
        return Features.of(known, personal=self.personal_start > 0)

    def _own(self, state: State, features: Features) -> Evidence:
        """What of the sums is a client's own."""
        if f"{OWN}/shift" not in state:
            return Evidence.none(features.n_outputs * features.n_features)
        return wider(Evidence(**part(state, OWN)), features.n_outputs, features.n_features)

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


def _arrays(evidence: Evidence) -> State:
    return {"triangle": evidence.triangle, "shift": evidence.shift}


def _sums(told: Mapping[str, Tensor]) -> Evidence:
    return Evidence(**part(told, SUMS))


def _named(noise: State) -> State:
    return {f"noise.{task}": value for task, value in noise.items()}


def _tasks(server: State) -> list[str]:
    positions = part(server, "position")
    return sorted(positions, key=lambda task: int(positions[task]))
