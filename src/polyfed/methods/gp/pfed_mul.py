"""pFed-Mul: clients with several tasks of different kinds learn the prior of one multi-output Gaussian process.

Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of Classification and
Regression", KDD 2025, doi:10.1145/3690624.3709341.

A round (equ:agg, eq. 5): the server sends the shared part of Θ; each client runs its E-step and either takes `local_steps`
steps of its own, whose result the server averages (mode `average`, as the paper's experiments do), or sends the gradient
of its bound, and the server takes one step on the average bound (mode `gradient`). Personal groups of Θ are learned on
the client and stay there. The noise of regression has a closed form that the server pools exactly over the clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import PolyfedError
from polyfed.gp import GROUPS, Evidence, group_of
from polyfed.methods.base import ClientResult, Job
from polyfed.methods.gp import theta_draws
from polyfed.methods.gp.client_noise import own_noise, pooled_levels, strengths_started
from polyfed.methods.gp.model import alike, clamped, prepared_rows
from polyfed.methods.gp.pfed_mul_model import PFedMulModel
from polyfed.methods.gp.states import Broadcast, ClientColumns, Moments, Sent, Served, Server, StateBatch, States
from polyfed.methods.gp.theta_prior import asked, pooled_noise
from polyfed.methods.messages import NOTHING, ClientUpdate, State
from polyfed.methods.update_batch import Change, Columns, UpdateBatch
from polyfed.seeds import Stream

log = logging.getLogger("polyfed")

# Of one client's numbers, state or memory, or of a network that users bring; torch raises RuntimeErrors.
BREAKDOWNS = (PolyfedError, ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
MOST_TOGETHER = 500  # clients: beyond that memory grows and time does not fall


@dataclass(frozen=True)
class PFedMul(PFedMulModel):
    """Options as of `PFedMulOptions`."""

    name: ClassVar[str] = "pfed-mul"
    summary: ClassVar[str] = "one Gaussian process over all tasks of a client, its prior learned by the federation"

    @property
    def personalises(self) -> bool:
        own = GROUPS if self._makes_features else GROUPS[1:]  # without features, there is no more to share
        return not set(own) <= set(self._shared)

    # ---- the server ---------------------------------------------------------------------------------------

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        model = self._model_config().model(spec.codecs, spec.n_features)
        values, shared = model.initial_values(stream), self._names(model, shared=True)
        server = Server(
            theta={name: values[name] for name in shared if name not in model.closed_form_noise},
            pooled={name: values[name] for name in shared if name in model.closed_form_noise},
            initial={name: values[name] for name in self._names(model, shared=False)},
        )
        if self.mode == "gradient":
            server = replace(server, optimiser=self._server_step.start(server.theta, server.pooled))
        if self.client_noise:
            server = replace(server, strengths=strengths_started(list(server.pooled)))
        if self.theta_draws:
            server = theta_draws.begun(server, self._hyper, model.prior, self.theta_draws, stream)
        if self._hyper is not None or self.halve_every is not None or self.client_noise or self.theta_draws:
            densities = {} if self._hyper is None else self._hyper.densities(model.prior)
            n_clients = torch.tensor(1.0 if self.pools_data else float(len(spec.clients)), dtype=torch.float64)
            mine = {name: density for name, density in densities.items() if name in shared}
            server = replace(server, densities=mine, n_clients=n_clients)
        return self._feature_learning.begun(server).to_arrays()

    def broadcast(self, server: State, client: str) -> State:
        return Broadcast.of(Server.from_arrays(server)).to_arrays()

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        if type(self).broadcast is not PFedMul.broadcast:  # which may send each client something else
            return super().broadcasts(server, clients)
        return [self.broadcast(server, "")] * len(clients)

    def prediction_state(self, server: State, client: str) -> State:
        return Served.from_arrays(server).to_arrays()

    def template(self, server: State) -> ClientUpdate:
        known = Server.from_arrays(server)
        tasks = [name.removeprefix("mixing.") for name in known.values if group_of(name) == "mixing"]
        return ClientUpdate(
            self._form(known).to_arrays(),
            dict.fromkeys(known.pooled, NOTHING),
            counts=dict.fromkeys(tasks, 0),
            metrics={"bound": 0.0},
        )

    def _form(self, server: Server) -> Sent:
        return replace(self._feature_learning.form(server), curvature=theta_draws.form(server))

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return [name.removeprefix("noise.")]

    def is_evidence(self, name: str) -> bool:
        return Sent.field_of(name) == "curvature"

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        known, sent = Server.from_arrays(server), [updates[client] for client in sorted(updates)]
        weights = torch.tensor([1.0 if self.weighting == "uniform" else u.weight for u in sent], dtype=torch.float64)
        columns, means = Columns(sent), dict[str, Tensor]()
        for name in self._form(known).to_arrays():
            # Changes of a row of W are averaged over the clients that have its task.
            owners = _owners(name, sent) if self.mode == "average" else 1.0
            means[name] = _mean(columns.array(name), weights * owners)
        mean = Sent.from_arrays(means)
        after = replace(known, curving=None, draws={})  # draws are of the Θ around which they were made
        if mean.direction is not None:
            return self._feature_learning.start(after, mean.direction).to_arrays()
        counted = {name: columns.pooled(name) for name in known.pooled}
        sums = {name: (total.sum(), count.sum()) for name, (total, count) in counted.items()}
        # In mode gradient one step on the average bound (equ:agg, eq. 5); clients without a task add nothing to its rows.
        if self.mode == "gradient":
            moved, memory = self._server_step.step(known, mean.gradient, sums, updates)
            moved, agreements = self._feature_learning.trusted(known, mean, moved)
            after = replace(after, optimiser=memory, agreements=agreements)
        else:
            moved = {name: known.theta[name] + change for name, change in mean.gradient.items()}
        if self.client_noise:
            levels, strengths = pooled_levels(known, counted, asked(known, len(sent)))
            moved, after = moved | levels, replace(after, strengths=strengths)
        for name in known.pooled:  # optimial sigma, eq. 20, over the labels of all clients
            if name not in moved:
                moved[name] = pooled_noise(name, *sums[name], known, len(sent))
        moved = clamped(moved)
        theta, pooled = ({name: moved[name] for name in names} for names in (known.theta, known.pooled))
        draws = theta_draws.drawn(known, moved, mean.curvature, self.theta_draws)
        return replace(after, theta=theta, pooled=pooled, draws=draws).to_arrays()

    # ---- a client -----------------------------------------------------------------------------------------

    def start(self, data: ClientData, stream: Stream) -> State:
        model = self.model(data)
        values = model.initial_values(stream)
        personal = {name: values[name] for name in self._names(model, shared=False)}
        return self._fresh(model, personal).to_arrays() | self._feature_learning.chosen(data, stream)

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        after, update = self._together([Job("", state, message, data, stream)])[0]
        return dict(after), update

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        outcomes: dict[int, ClientResult] = {}
        for group in alike([job.data for job in jobs]):
            for places in (group[i : i + MOST_TOGETHER] for i in range(0, len(group), MOST_TOGETHER)):
                chosen = [jobs[i] for i in places]
                try:
                    done: Sequence[ClientResult] = self._together(chosen)
                except BREAKDOWNS as error:  # of one of them: alone, each answers for itself
                    found = len(chosen), type(error).__name__
                    log.info("%d clients cannot be computed together (%s): each alone", *found)
                    done = [self._attempt(job) for job in chosen]
                outcomes |= zip(places, done, strict=True)
        return [outcomes[i] for i in range(len(jobs))]

    def _together(self, jobs: Sequence[Job]) -> list[tuple[Any, ClientUpdate]]:
        model, features = self.model(jobs[0].data), self._feature_learning
        shared, personal = self._names(model, shared=True), self._names(model, shared=False)
        closed = [name for name in shared if name in model.closed_form_noise]
        own_noises = closed if self.client_noise else []
        received, states = Broadcast.stacked([job.message for job in jobs]), States([job.state for job in jobs])
        clients = states.stacked(ClientColumns.unsaid(received, own_noises))
        before = {name: received.theta[name] for name in shared}
        before |= {name: clients.personal[name] for name in [*personal, *own_noises]}

        masks = states.held_out if features.share else []
        of_features, of_the_rest = features.split([job.data for job in jobs], masks)
        rows = [prepared_rows(data, model.likelihoods) for data in of_the_rest]
        taught = [prepared_rows(data, model.likelihoods) for data in of_features] if masks else rows
        work = self._work(personal if self.mode == "gradient" else [*shared, *personal], self.local_steps)
        knowledge = self._knowledge(model, clients.evidence, received)
        after, memory, step = work.run(model, rows, before, clients.optimiser, clients.anchors, states.warm, knowledge)

        changes = step.gradient if self.mode == "gradient" else {name: after[name] - before[name] for name in shared}
        sent = Sent({name: changes[name] for name in shared if name not in closed})
        bounds, on_taught = step.bound, None
        if masks:  # the gradient of the features comes from the labels that are not held out
            _, _, on_taught = self._work([], 1, ("features",)).run(model, taught, after, Moments(), {}, states.taught)
            gradient, held_out = sent.gradient | on_taught.gradient, features.of(step.gradient)
            sent, bounds = replace(sent, gradient=gradient, held_out=held_out), bounds + on_taught.bound
        if received.curving is not None:
            sent = replace(sent, curvature=theta_draws.curvature(model, rows, after, shared, step))
        if received.starting is not None:
            sent = features.with_directions(sent, model.prior, before, taught, rows)
        nobody = torch.zeros(len(jobs), dtype=torch.float64)
        pooled = {name: step.noise.get(name.removeprefix("noise."), (nobody, nobody)) for name in closed}
        evidence, change = self._evidence(clients.evidence, step.evidence, states.stay_together)
        updates = UpdateBatch({**sent.to_arrays(), **change}, pooled)

        own = {name: after[name] for name in personal} | own_noise(step.noise, received, own_noises)
        stacked, apart = (evidence, None) if states.stay_together else (None, evidence)
        batch = StateBatch(
            ClientColumns(own, memory, clients.anchors, stacked),
            step.marginals_alone(),
            None if on_taught is None else on_taught.marginals_alone(),
        )
        done = zip(jobs, batch.states(len(jobs), masks, apart), bounds.tolist(), strict=True)
        return [
            (state, updates.update(i, float(job.data.n_labels), job.data.counts(), {"bound": bound}))
            for i, (job, state, bound) in enumerate(done)
        ]

    def _evidence(
        self, own: Evidence | None, found: Evidence | None, together: bool
    ) -> tuple[Evidence | None, Mapping[str, Tensor | Change]]:
        """What clients keep, and what they send beside their gradients, with the clients in the first dimension."""
        return None, {}


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean over the first dimension; zero if nobody has a weight.

    >>> _mean(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0], dtype=torch.float64))
    tensor([2.])
    """
    shaped = weights.reshape(-1, *(1,) * (values.dim() - 1))
    mean = (shaped * values).sum(0) / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)
    return mean.to(values.dtype)  # a network's are of float32


def _owners(name: str, sent: Sequence[ClientUpdate]) -> Tensor:
    """One for the clients that have the task of this parameter, zero for the others."""
    if group_of(name) not in ("mixing", "noise"):
        return torch.ones(len(sent), dtype=torch.float64)
    task = name.partition(".")[2]
    return torch.tensor([float(update.counts[task] > 0) for update in sent], dtype=torch.float64)
