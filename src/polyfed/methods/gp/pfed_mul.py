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
from polyfed.gp import GROUPS, BatchStep, group_of
from polyfed.methods.base import ClientResult, Job
from polyfed.methods.gp import client_noise, feature_learning, theta_draws
from polyfed.methods.gp.client_stacks import mean_over, owners, stacked
from polyfed.methods.gp.clients import solver_of
from polyfed.methods.gp.expected_curvature import expected_curvature
from polyfed.methods.gp.model import alike, clamped, prepared_rows
from polyfed.methods.gp.pfed_mul_model import PFedMulModel
from polyfed.methods.gp.projection_start import PROJECTION
from polyfed.methods.gp.state_batch import StateBatch, States
from polyfed.methods.gp.theta_curvature import hessians
from polyfed.methods.gp.theta_prior import asked, balanced, noise_slope, pooled_noise, remembered, with_prior
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix
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
        values = model.initial_values(stream)
        shared = self._names(model, shared=True)
        server = {}
        for name, value in values.items():
            kind = "initial" if name not in shared else "pooled" if name in model.closed_form_noise else "theta"
            server[f"{kind}/{name}"] = value
        if self.mode == "gradient":
            server |= with_prefix("adam", self._started(strip_prefix(server, "theta"), strip_prefix(server, "pooled")))
        if self.client_noise:
            server |= client_noise.started(list(strip_prefix(server, "pooled")))
        if self.theta_draws:
            widths = {n: d for n, d in (self._hyper or theta_draws.UNIT).densities(model.prior).items() if n in shared}
            own = replace(stream, purpose=f"{stream.purpose} draws")
            server |= theta_draws.remembered(widths, values, self.theta_draws, own)
        if self._hyper is not None or self.halve_every is not None or self.client_noise or self.theta_draws:
            densities = {} if self._hyper is None else self._hyper.densities(model.prior)
            mine = {name: density for name, density in densities.items() if name in shared}
            server |= remembered(mine, 1 if self.pools_data else len(spec.clients))
        return server | self._feature_learning.begun(strip_prefix(server, "theta"))

    @property
    def needs_last_round(self) -> bool:
        return self.theta_draws > 0

    def begin_round(self, server: State, rounds_left: int) -> State:
        return theta_draws.begun(server, rounds_left) if self.theta_draws else server

    def broadcast(self, server: State, client: str) -> State:
        curving = {name: server[name] for name in (theta_draws.CURVING,) if name in server}
        return {
            **strip_prefix(server, "theta"),
            **strip_prefix(server, "pooled"),
            **self._feature_learning.broadcast(server),
            **curving,
            **client_noise.received(server),
        }

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        if type(self).broadcast is not PFedMul.broadcast:  # which may send each client something else
            return super().broadcasts(server, clients)
        return [self.broadcast(server, "")] * len(clients)

    def prediction_state(self, server: State, client: str) -> State:
        own = ("adam/", "density/", "clients", *feature_learning.OWN, *theta_draws.OWN)
        return {name: value for name, value in server.items() if not name.startswith(own)}

    def template(self, server: State) -> ClientUpdate:
        nothing = torch.zeros((), dtype=torch.float64)
        tasks = [name.removeprefix("mixing.") for name in self._values(server) if group_of(name) == "mixing"]
        return ClientUpdate(
            self._feature_learning.form(server) | theta_draws.form(server),
            dict.fromkeys(strip_prefix(server, "pooled"), (nothing, nothing)),
            counts=dict.fromkeys(tasks, 0),
            metrics={"bound": 0.0},
        )

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return [name.removeprefix("noise.")]

    def is_evidence(self, name: str) -> bool:
        return name == theta_draws.CURVATURE

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        theta, sent = strip_prefix(server, "theta"), [updates[client] for client in sorted(updates)]
        weights = torch.tensor([1.0 if self.weighting == "uniform" else u.weight for u in sent], dtype=torch.float64)
        columns, pooled = Columns(sent), strip_prefix(server, "pooled")
        if feature_learning.STARTING in server:
            return self._feature_learning.start(theta_draws.without_draws(server), columns, weights)
        arrays = {name: columns.array(name) for name in theta}
        counted = {name: columns.pooled(name) for name in pooled}
        sums = {name: (total.sum(), count.sum()) for name, (total, count) in counted.items()}
        after = theta_draws.without_draws(server)
        # In mode gradient one step on the average bound (equ:agg, eq. 5); who lacks a task adds nothing to its rows.
        if self.mode == "gradient":
            gradient = {name: mean_over(value, weights) for name, value in arrays.items()}
            moved, memory = self._stepped(server, with_prior(gradient, theta, server), sums, updates)
            after |= with_prefix("adam", memory)
            moved, agreements = self._feature_learning.trusted(server, gradient, columns, weights, moved)
            after |= agreements
        else:  # a row of W or a noise is averaged over the clients that have that task
            moved = {
                name: theta[name] + mean_over(value, weights * owners(name, sent)) for name, value in arrays.items()
            }
        for name in pooled if self.client_noise else ():
            moved[name], strength = client_noise.pooled(name, counted[name], server, asked(server, len(sent)))
            after[f"{client_noise.STRENGTH}/{name}"] = strength
        for name, value in pooled.items():  # optimial sigma, eq. 20, over the labels of all clients
            if name not in moved:
                moved[name] = pooled_noise(name, value, *sums[name], server, len(sent))
        moved = clamped(moved)
        after |= with_prefix("theta", {name: moved[name] for name in theta})
        after |= with_prefix("pooled", {name: moved[name] for name in pooled})
        if theta_draws.CURVING in server:
            curvature = mean_over(
                stacked([update.arrays for update in sent], [theta_draws.CURVATURE])[theta_draws.CURVATURE], weights
            )
            hessian = theta_draws.symmetric(server["clients"] * curvature, server[theta_draws.NORMALS].shape[1])
            after |= with_prefix(
                theta_draws.DRAWS, clamped(theta_draws.drawn(moved, hessian, server, self.theta_draws))
            )
        return after

    def _started(self, theta: State, pooled: State) -> State:
        quasi = self._quasi_newton
        return self._adam.start(theta) if quasi is None else quasi.start(theta | self._joint(pooled))

    def _joint(self, pooled: State) -> State:
        """The noises that a quasi-Newton step moves with the rest of Θ."""
        return {} if self.client_noise else pooled

    def _stepped(
        self,
        server: State,
        gradient: State,
        sums: Mapping[str, tuple[Tensor, Tensor]],
        updates: Mapping[str, ClientUpdate],
    ) -> tuple[State, State]:
        """Θ after the server's step, noise included where it moves with the rest, and what the optimiser remembers."""
        theta, pooled, memory = (
            strip_prefix(server, "theta"),
            self._joint(strip_prefix(server, "pooled")),
            strip_prefix(server, "adam"),
        )
        share, quasi = asked(server, len(updates)), self._quasi_newton
        if quasi is None:
            return self._adam.step(theta, gradient, memory, share)
        slopes = {name: noise_slope(value, *sums[name], len(updates)) for name, value in pooled.items()}
        whole = gradient | with_prior(slopes, pooled, server)
        expected = expected_curvature(theta, pooled, server, [update.counts for update in updates.values()])
        moved, memory, led = quasi.step(theta | pooled, whole, expected, memory, share, updates)
        return {name: value for name, value in balanced(moved, server).items() if led or name in theta}, memory

    # ---- a client -----------------------------------------------------------------------------------------

    def start(self, data: ClientData, stream: Stream) -> State:
        model = self.model(data)
        values = model.initial_values(stream)
        personal = {name: values[name] for name in self._names(model, shared=False)}
        return self._fresh(model, personal) | self._feature_learning.chosen(data, stream)

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        state, update = self._together([Job("", state, message, data, stream)])[0]
        return dict(state), update

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        outcomes: dict[int, ClientResult] = {}
        for group in alike([job.data for job in jobs]):
            for places in (group[i : i + MOST_TOGETHER] for i in range(0, len(group), MOST_TOGETHER)):
                chosen = [jobs[i] for i in places]
                try:
                    done: list[ClientResult] = list(self._together(chosen))
                except BREAKDOWNS as error:  # of one of them: alone, each answers for itself
                    log.info(
                        "%d clients cannot be computed together (%s): each alone", len(chosen), type(error).__name__
                    )
                    done = [self._attempt(job) for job in chosen]
                outcomes |= zip(places, done, strict=True)
        return [outcomes[i] for i in range(len(jobs))]

    def _together(self, jobs: Sequence[Job]) -> list[tuple[Any, ClientUpdate]]:
        model = self.model(jobs[0].data)
        shared, personal = self._names(model, shared=True), self._names(model, shared=False)
        states = [job.state for job in jobs]
        clients, features = States(states), self._feature_learning
        of_features, of_the_rest = features.split([job.data for job in jobs], states)
        rows = [prepared_rows(data, model.likelihoods) for data in of_the_rest]
        before = stacked([job.message for job in jobs], shared) | {
            name: value for name, value in clients.under("personal").items() if name in personal
        }
        own_noise = [name for name in shared if self.client_noise and name in model.closed_form_noise]
        before = client_noise.with_own(before, states, own_noise)
        work = self._work(personal if self.mode == "gradient" else [*shared, *personal], self.local_steps)
        memory, anchors = clients.under("adam"), clients.under("anchor")
        knowledge = self._knowledge(model, clients, [job.message for job in jobs])
        after, memory, step = work.run(model, rows, before, memory, anchors, clients.start("warm"), knowledge)

        closed = model.closed_form_noise
        learned = [name for name in shared if name not in closed]
        sent = step.gradient if self.mode == "gradient" else {name: after[name] - before[name] for name in learned}
        steps = {"warm": step}
        if features.share:  # the gradient of the features comes from the labels that are not held out
            taught = [prepared_rows(data, model.likelihoods) for data in of_features]
            steps["taught"] = solver_of(model, taught).step(
                model.prior.with_values(after),
                start=clients.start("taught"),
                tolerance=self.tolerance,
                max_steps=self.mf_steps,
                groups=("features",),
            )
            gradients = features.gradients(steps["taught"].gradient, step.gradient)
            sent, learned = sent | gradients, list(dict.fromkeys([*learned, *gradients]))
        if theta_draws.CURVING in jobs[0].message:
            drawn = sorted(name for name in shared if group_of(name) != "features")
            second = hessians(model, solver_of(model, rows), after, drawn, step, knowledge)
            sent = sent | {theta_draws.CURVATURE: theta_draws.triangle(second)}
            learned = [*learned, theta_draws.CURVATURE]
        if feature_learning.STARTING in jobs[0].message:
            taught = [prepared_rows(data, model.likelihoods) for data in of_features]
            sent = sent | features.directions(model.prior, before, taught, rows)
            learned = [name for name in learned if name != PROJECTION] + [feature_learning.DIRECTION]
        done, bounds = [], torch.stack([one.bound for one in steps.values()]).sum(0).tolist()
        nobody = torch.zeros(len(jobs), dtype=torch.float64)
        pooled = {
            name: step.noise.get(name.removeprefix("noise."), (nobody, nobody)) for name in shared if name in closed
        }
        noises = client_noise.found(step.noise, [job.message for job in jobs], own_noise)
        evidence, change = self._evidence(clients, step, jobs[0].message)
        own = with_prefix("personal", {name: after[name] for name in personal} | noises)
        own |= with_prefix("adam", memory) | with_prefix("anchor", anchors)
        if clients.stay_together:
            own, evidence = own | evidence, {}
        next_states = StateBatch(own, {label: one.marginals_alone() for label, one in steps.items()})
        updates = UpdateBatch({**{name: sent[name] for name in learned}, **change}, pooled)
        for i, job in enumerate(jobs):
            kept = {name: value[i].clone() for name, value in evidence.items()} if evidence else {}
            update = updates.update(i, float(job.data.n_labels), job.data.counts(), {"bound": bounds[i]})
            done.append((next_states.state(i, kept | features.kept(job.state)), update))
        return done

    def _evidence(
        self, clients: States, step: BatchStep, message: State
    ) -> tuple[State, Mapping[str, Tensor | Change]]:
        """What clients keep and what they send beside their gradients, with the clients in the first dimension."""
        return {}, {}
