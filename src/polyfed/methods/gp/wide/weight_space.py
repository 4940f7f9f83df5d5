"""pfed-hier for wide inputs, such as features of images: shared functions of the principal components of the federation.

f_c(x) = V'φ(x) + V_c'φ(x), where V is one for all clients and V_c each client's own (gp/weight_space.py). Rounds go through
three stages, by what the server's state has in it:

* the first `passes` find the principal components of all inputs (methods/gp/wide/component_rounds.py);
* then φ are the scores along these and a constant. Clients send the change of their evidence of V, as in pfed_hier.py,
  and the moments of V_c; the server has B of both in closed form, by EM;
* after `linear_rounds` the function is bent: φ gets features of the outputs z = E[V]'φ too (gp/curved.py). At the rows that V
  was learned from, z would know their labels; so a client computes it there from what the *others* know, and keeps it.

The server has nothing by client but who has received the components, which do not change any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError, NumericalError
from polyfed.gp import Evidence
from polyfed.gp.components import basis_of, first_basis, leading
from polyfed.gp.curved import N_POINTS
from polyfed.gp.weight_space import Weights, learned, renewed, wider
from polyfed.methods.gp.evidence_limits import is_evidence_of_someone, limits_of
from polyfed.methods.gp.model import clamped
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.wide import component_rounds, weight_limits
from polyfed.methods.gp.wide.weight_clients import (
    MOMENTS,
    OUTPUTS,
    PERSONAL,
    WeightClients,
    named,
    stepped,
    sums_of,
)
from polyfed.methods.gp.wide.weight_features import CURVE, SHARED, SUMS, Features, model_of
from polyfed.methods.messages import PREPARING, ClientUpdate, State, client_key, strip_prefix, with_prefix
from polyfed.modelling.memory import holds
from polyfed.seeds import Stream

WIDEST = 808  # weights of the shared function: their triangle is a message of 2.6 MB
WIDEST_CURVE = 320  # of these, what a curved part may have
MATRICES = 8  # of all weights by all weights, at once
MOST_COMPONENTS, FEWEST_COMPONENTS = 384, 8
NOISE = 0.3  # to start from, where it has a closed form: nothing is explained yet
BENT = 0.3  # variance of a curved feature's weight to start from
EM_STEPS, EM_TOLERANCE = 4, 0.01  # of the server in a round: fewer steps once B hardly moves
ADAM = Adam({"noise": 0.1})  # for noises without a closed form


@dataclass(frozen=True)
class WeightSpace(WeightClients):
    """What the server does; options and clients are in methods/gp/wide/weight_clients.py."""

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
            "received": torch.zeros(0, dtype=torch.int64),
            SHARED: torch.stack([eye, eye, BENT * eye]),
            PERSONAL: self.personal_start * torch.stack([eye, eye]),
        }
        for i, (task, likelihood) in enumerate(model.likelihoods.items()):
            server[f"position/{task}"] = torch.tensor(i)  # storage does not keep the order of names
            if likelihood.initial_noise is not None:
                start = NOISE if likelihood.closed_form_noise else likelihood.initial_noise
                server[f"noise/{task}"] = torch.tensor(start, dtype=torch.float64).log()
        moving = {f"noise.{task}": server[f"noise/{task}"] for task in stepped(model)}
        return server | with_prefix("adam", ADAM.start(moving)) | with_prefix("limit", limits_of(model))

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
        return T * T * N_POINTS <= WIDEST_CURVE

    def broadcast(self, server: State, client: str) -> State:
        if "basis" in server:
            return {"basis": server["basis"]}
        received = bool((server["received"] == client_key(client)).any())
        wanted = (SUMS, "coregionalisation", "noise", CURVE, *(() if received else (component_rounds.COMPONENTS,)))
        return {name: value for name, value in server.items() if name.startswith(tuple(f"{w}/" for w in wanted))}

    def prediction_state(self, server: State, client: str) -> State:
        own = ("basis", "wanted", "passes", "rounds", "received", "position/", "adam/", "limit/")
        return {name: value for name, value in server.items() if not name.startswith(own)}

    def template(self, server: State) -> ClientUpdate:
        counts = dict.fromkeys(_tasks(server), 0)
        if "basis" in server:
            return ClientUpdate(component_rounds.form(server["basis"]), counts=counts, metrics={PREPARING: 1.0})
        arrays = with_prefix(SUMS, strip_prefix(server, SUMS)) | {MOMENTS: server[PERSONAL]}
        arrays |= {f"noise.{task}": server[f"noise/{task}"] for task in self._moved(server)}
        if f"{CURVE}/weights" not in server:
            arrays[OUTPUTS] = server[SHARED].new_zeros(3, server[SHARED].shape[-1])
        nothing = torch.zeros((), dtype=torch.float64)
        pooled = [task for task in strip_prefix(server, "noise") if task not in self._moved(server)]
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
            return component_rounds.objection(update.arrays, sum(update.counts.values()), server["basis"])
        if OUTPUTS in update.arrays and (reason := weight_limits.objection_to_outputs(update.arrays[OUTPUTS])):
            return reason
        most = weight_limits.precisions(strip_prefix(server, "limit"), strip_prefix(server, "noise"), update.counts)
        features = self._features(server)
        sizes = torch.tensor(features.personal_sizes, dtype=torch.float64)
        change = Evidence(**strip_prefix(update.arrays, SUMS))
        return weight_limits.objection(most, sums_of(server), change, server[PERSONAL], sizes, update.arrays[MOMENTS])

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        sent = [updates[client] for client in sorted(updates)]
        if "basis" in server:
            return self._sought(server, sent)
        features = self._features(server)
        after = dict(server)
        for name in with_prefix(SUMS, strip_prefix(server, SUMS)):
            after[name] = server[name] + torch.stack([update.arrays[name] for update in sent]).sum(0)
        sums = sums_of(after)
        if not is_evidence_of_someone(sums):  # each may be sound, and all together not
            raise NumericalError(
                "the evidence of all clients is no distribution of the shared functions",
                remedy="look for clients that send what is not theirs",
            )
        after[SHARED] = learned(features.shared(server[SHARED]), sums, EM_STEPS, EM_TOLERANCE).B
        rounds = int(server["rounds"]) + 1
        after["rounds"] = torch.tensor(rounds)
        informed = [update for update in sent if any(update.counts.values())]  # others know the prior alone
        if rounds > self.personal_after and any(features.personal_sizes) and informed:
            moments = torch.stack([update.arrays[MOMENTS] for update in informed]).sum(0)
            after[PERSONAL] = renewed(features.personal(server[PERSONAL]), moments, len(informed)).B
        after |= self._noise(server, sent)
        keys = torch.tensor([client_key(client) for client in sorted(updates)], dtype=torch.int64)
        after["received"] = torch.cat([server["received"], keys]).unique()
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
        return after | component_rounds.stored(found) | with_prefix(SUMS, nothing.arrays)

    def _bent(self, server: State, features: Features, outputs: Tensor) -> State:
        """What curved features are made of from now on, and room for their evidence."""
        first, second, n = outputs
        mean = first / n.clamp_min(1.0)
        spread = (second / n.clamp_min(1.0) - mean.square()).clamp_min(0.0).sqrt()
        V = Weights(features.shared(server[SHARED]), sums_of(server)).V
        curve = {"weights": V, "mean": mean, "spread": torch.where(spread > 1e-6, spread, 1.0)}
        T = features.n_outputs
        sums = wider(sums_of(server), T, features.n_features + T * N_POINTS)
        return with_prefix(CURVE, curve) | with_prefix(SUMS, sums.arrays)

    def _noise(self, server: State, sent: Sequence[ClientUpdate]) -> State:
        """Pooled over the labels of all clients where it has a closed form, else a step along the average gradient."""
        moved: State = {}
        for name in sent[0].pooled:
            total, count = (torch.stack([update.pooled[name][i] for update in sent]).sum() for i in (0, 1))
            moved[name] = (total / count).log() if count > 0 else server[name.replace(".", "/", 1)]
        stepped = {f"noise.{task}": server[f"noise/{task}"] for task in self._moved(server)}
        gradient = {name: torch.stack([update.arrays[name] for update in sent]).mean(0) for name in stepped}
        values, memory = ADAM.step(stepped, gradient, strip_prefix(server, "adam"))
        moved = clamped(moved | values)
        return {name.replace(".", "/", 1): value for name, value in moved.items()} | with_prefix("adam", memory)

    @staticmethod
    def _moved(server: State) -> list[str]:
        names = (name.removeprefix("adam/first.noise.") for name in server if name.startswith("adam/first."))
        return sorted(names)

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """How the tasks go together along the components, and their noise."""
        model = model_of(data.codecs, self.bound)
        W = torch.linalg.cholesky(server[SHARED][0]).split(list(model.prior.outputs.values()))
        mixing = {f"mixing.{task}": rows for task, rows in zip(model.prior.outputs, W, strict=True)}
        values = {**model.prior.state(), **mixing, **named(strip_prefix(server, "noise"))}
        return model.explain(values, ("kernels", "mixing", "noise"), data.codecs)


def _tasks(server: State) -> list[str]:
    positions = strip_prefix(server, "position")
    return sorted(positions, key=lambda task: int(positions[task]))
