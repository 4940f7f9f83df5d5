"""pFed-Mul: clients with several tasks of different kinds learn the prior of one multi-output Gaussian process.

Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of Classification and
Regression", KDD 2025, doi:10.1145/3690624.3709341.

A round (equ:agg, eq. 5): the server sends the shared part of Θ; each client runs its E-step and either takes `local_steps`
steps of its own, whose result the server averages (mode `average`, as the paper's experiments do), or sends the gradient
of its bound, and the server takes one step on the average bound (mode `gradient`). Personal groups of Θ are learned on
the client and stay there. The noise of regression has a closed form that the server pools exactly over the clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.gp import GROUPS, BatchStep, group_of
from polyfed.gp.knowledge import KnowledgeOf
from polyfed.methods.base import ClientResult, Job, Outlook, Predictor, Question
from polyfed.methods.gp import client_noise, theta_draws
from polyfed.methods.gp.client_stacks import mean_over, owners, stacked
from polyfed.methods.gp.clients import LocalWork, solver_of
from polyfed.methods.gp.expected_curvature import expected_curvature
from polyfed.methods.gp.holdout import MEMORY, agreement, held_out_inputs, judged_together, parted, shortened, trust
from polyfed.methods.gp.model import Averaged, GPModel, PosteriorPredictor, alike, clamped, prepared_rows
from polyfed.methods.gp.outlook import outlook_of
from polyfed.methods.gp.pfed_mul_options import PFedMulOptions
from polyfed.methods.gp.predictions import answers
from polyfed.methods.gp.projection_start import PROJECTION, directions, started
from polyfed.methods.gp.state_batch import StateBatch, States, marginals_in
from polyfed.methods.gp.theta_curvature import hessians
from polyfed.methods.gp.theta_prior import asked, balanced, noise_slope, pooled_noise, remembered, with_prior
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix
from polyfed.methods.update_batch import Change, Columns, UpdateBatch
from polyfed.predictions import Predictions
from polyfed.predictions.mixture import mixed
from polyfed.seeds import Stream

MOST_TOGETHER = 500  # clients: beyond that memory grows and time does not fall
NOISE_STEPS = 20  # of a client that joins and has a noise level of its own


@dataclass(frozen=True)
class PFedMul(PFedMulOptions):
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
        if self._seeks:
            server["starting"] = torch.ones((), dtype=torch.float64)
        if self._share:
            together = judged_together(self._features(strip_prefix(server, "theta")))
            server |= with_prefix("agreement", dict.fromkeys(together, torch.ones((), dtype=torch.float64)))
        return server

    @property
    def needs_last_round(self) -> bool:
        return self.theta_draws > 0

    def begin_round(self, server: State, rounds_left: int) -> State:
        return theta_draws.begun(server, rounds_left) if self.theta_draws else server

    def broadcast(self, server: State, client: str) -> State:
        starting = {"starting": server["starting"]} if "starting" in server else {}
        curving = {name: server[name] for name in (theta_draws.CURVING,) if name in server}
        return {
            **strip_prefix(server, "theta"),
            **strip_prefix(server, "pooled"),
            **starting,
            **curving,
            **client_noise.received(server),
        }

    def broadcasts(self, server: State, clients: Sequence[str]) -> list[State]:
        if type(self).broadcast is not PFedMul.broadcast:  # which may send each client something else
            return super().broadcasts(server, clients)
        return [self.broadcast(server, "")] * len(clients)

    def prediction_state(self, server: State, client: str) -> State:
        own = ("adam/", "agreement/", "starting", "density/", "clients", *theta_draws.OWN)
        return {name: value for name, value in server.items() if not name.startswith(own)}

    def template(self, server: State) -> ClientUpdate:
        nothing = torch.zeros((), dtype=torch.float64)
        tasks = [name.removeprefix("mixing.") for name in self._values(server) if group_of(name) == "mixing"]
        theta = strip_prefix(server, "theta")
        return ClientUpdate(
            theta | with_prefix("kept", self._features(theta)) | theta_draws.form(server),
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
        arrays = {name: columns.array(name) for name in theta}
        counted = {name: columns.pooled(name) for name in pooled}
        sums = {name: (total.sum(), count.sum()) for name, (total, count) in counted.items()}
        after = theta_draws.without_draws(server)
        if after.pop("starting", None) is not None:
            # All else is learned from the next round on, where it has a meaning.
            return after | {f"theta/{PROJECTION}": started(theta[PROJECTION], mean_over(arrays[PROJECTION], weights))}
        # In mode gradient one step on the average bound (equ:agg, eq. 5); who lacks a task adds nothing to its rows.
        if self.mode == "gradient":
            gradient = {name: mean_over(value, weights) for name, value in arrays.items()}
            moved, memory = self._stepped(server, with_prior(gradient, theta, server), sums, updates)
            after |= with_prefix("adam", memory)
            for label, features in judged_together(self._features(gradient)).items():
                kept = {name: columns.array(f"kept/{name}") for name in features}
                now = agreement(features, {name: mean_over(value, weights) for name, value in kept.items()})
                so_far = MEMORY * server[f"agreement/{label}"] + (1 - MEMORY) * now
                after[f"agreement/{label}"] = so_far
                moved = shortened(theta, moved, features, trust(so_far))
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
        return self._fresh(model, personal) | self._kept(data, stream)

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
                except Exception:  # one of them broke down; alone, each answers for itself
                    done = [self._attempt(job) for job in chosen]
                outcomes |= zip(places, done, strict=True)
        return [outcomes[i] for i in range(len(jobs))]

    def _together(self, jobs: Sequence[Job]) -> list[tuple[Any, ClientUpdate]]:
        model = self.model(jobs[0].data)
        shared, personal = self._names(model, shared=True), self._names(model, shared=False)
        states = [job.state for job in jobs]
        clients, kept_by = States(states), [job.data for job in jobs]
        taught = kept_by  # whose labels the features see
        if self._share:
            taught, kept_by = zip(*(parted(job.data, job.state["kept"]) for job in jobs), strict=True)
        rows = [prepared_rows(data, model.likelihoods) for data in kept_by]
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
        if self._share:  # what is sent of the features comes from the labels that are not kept apart
            steps["seen"] = solver_of(model, [prepared_rows(data, model.likelihoods) for data in taught]).step(
                model.prior.with_values(after),
                start=clients.start("seen"),
                tolerance=self.tolerance,
                max_steps=self.mf_steps,
                groups=("features",),
            )
            sent = sent | steps["seen"].gradient | with_prefix("kept", self._features(step.gradient))
            learned = [*learned, *with_prefix("kept", self._features(step.gradient))]
        if theta_draws.CURVING in jobs[0].message:
            drawn = sorted(name for name in shared if group_of(name) != "features")
            second = hessians(model, solver_of(model, rows), after, drawn, step, knowledge)
            sent = sent | {theta_draws.CURVATURE: theta_draws.triangle(second)}
            learned = [*learned, theta_draws.CURVATURE]
        if "starting" in jobs[0].message:
            seen = [prepared_rows(data, model.likelihoods) for data in taught]
            priors = [
                model.prior.with_values({name: value[i] for name, value in before.items()}) for i in range(len(jobs))
            ]
            found = [directions(*each) for each in zip(priors, seen, rows, strict=True)]
            sent = sent | {PROJECTION: torch.stack(found)}
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
        holds_out = self._share > 0
        for i, job in enumerate(jobs):
            kept = {name: value[i].clone() for name, value in evidence.items()} if evidence else {}
            if holds_out:
                kept["kept"] = job.state["kept"]
            update = updates.update(i, float(job.data.n_labels), job.data.counts(), {"bound": bounds[i]})
            done.append((next_states.state(i, kept), update))
        return done

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        model, own = self.model(data), strip_prefix(state or {}, "personal")
        draws = theta_draws.draws_in(server) or [{}]
        each = [model.predict({**self._values(server), **draw, **own}, data) for draw in draws]
        return Averaged(each) if len(each) > 1 else each[0]

    def predict_many(self, server: State, questions: Sequence[Question]) -> list[Predictions]:
        served = [self.predictor(server, one.state, one.data) for one in questions]
        each = [one.parts if isinstance(one, Averaged) else [one] for one in served]
        pairs = [(asked, predict) for asked, own in zip(questions, each, strict=True) for predict in own]
        said = iter(self._answers([asked for asked, _ in pairs], [predict for _, predict in pairs]))
        return [mixed([next(said) for _ in own]) for own in each]

    def _answers(self, questions: Sequence[Question], predictors: Sequence[Predictor]) -> list[Predictions]:
        """What each of these predictors says, many at once where they are Gaussian processes alike."""
        found: dict[int, Predictions] = {}
        ready: list[int] = []
        for i, (one, predict) in enumerate(zip(questions, predictors, strict=True)):
            if not isinstance(predict, PosteriorPredictor):  # of a method that predicts in another way
                found[i] = predict(one.x)
                continue
            if not self._share:  # else some labels were held out where training ended
                predict.begin_at(marginals_in(one.state or {}, "warm"))
            ready.append(i)
        for group in alike([questions[i].data for i in ready]):
            places = [ready[i] for i in group]
            own = [predictors[i] for i in places]
            found |= zip(places, answers(own, [questions[i].x for i in places]), strict=True)  # pyright: ignore[reportArgumentType]
        return [found[i] for i in range(len(questions))]

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """Personal groups are learned in `join_steps` steps on the client's own data; shared ones stay as they are."""
        model = self.model(data)
        personal = self._names(model, shared=False)
        state = self._fresh(model, {name: self._values(server)[name] for name in personal}) | self._kept(data, stream)
        values = {name: value[None] for name, value in self._values(server).items()}
        if self.client_noise and data.n_labels:
            state |= with_prefix("personal", self._noise_of_late_client(model, values, state, server, data))
        if not personal or not self.join_steps or not data.n_labels:
            return state
        work = self._work(personal, self.join_steps)
        values = client_noise.with_own(
            values, [state], list(strip_prefix(server, "pooled")) if self.client_noise else []
        )
        learned = {name: state[f"personal/{name}"] for name in personal}
        memory = {name: value[None] for name, value in self._adam.start(learned).items()}
        anchors = {name: value[None] for name, value in strip_prefix(state, "anchor").items()}
        rows, knowledge = [prepared_rows(data, model.likelihoods)], self._knowledge(model, States([state]), [server])
        after, _, _ = work.run(model, rows, values, memory, anchors, [None], knowledge)
        return state | with_prefix("personal", {name: after[name][0] for name in personal})

    def _noise_of_late_client(
        self, model: GPModel, values: State, state: State, server: State, data: ClientData
    ) -> State:
        """What as many rounds would have told a client of its noise."""
        names, rows = list(strip_prefix(server, "pooled")), [prepared_rows(data, model.likelihoods)]
        message, knowledge = self.broadcast(server, ""), self._knowledge(model, States([state]), [server])
        step = None
        for _ in range(NOISE_STEPS):
            step = solver_of(model, rows).step(
                model.prior.with_values(values),
                start=[None] if step is None else step,
                tolerance=self.tolerance,
                max_steps=self.mf_steps,
                groups=(),
                knowledge=knowledge,
            )
            values = values | client_noise.found(step.noise, [message], names)
        return {name: values[name][0] for name in names}

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        values = {**self._values(server), **strip_prefix(state or {}, "personal")}
        return outlook_of(self.model(data), values, data, steps=self.local_steps, mf_steps=self.mf_steps)

    # ---- what clients may share beside Θ (methods/gp/pfed_hier.py) ---------------------------------------------

    def _knowledge(self, model: GPModel, clients: States, received: Sequence[State]) -> KnowledgeOf | None:
        """What clients with these states know of shared functions, told so much by the server; None if there are none."""
        return None

    def _evidence(
        self, clients: States, step: BatchStep, message: State
    ) -> tuple[State, Mapping[str, Tensor | Change]]:
        """What clients keep and what they send beside their gradients, with the clients in the first dimension."""
        return {}, {}

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """Length-scales, noise and the correlation of the tasks, as far as they are shared."""
        model = self.model(data)
        return model.explain(self._values(server), self._shared, data.codecs)

    # ---- the parts of Θ -------------------------------------------------------------------------------------

    def model(self, data: ClientData) -> GPModel:
        """The Gaussian process of a client."""
        return self._model_config().model(data.codecs, data.n_features)

    def _names(self, model: GPModel, *, shared: bool) -> list[str]:
        return [name for name in model.prior.parameters if (group_of(name) in self._shared) == shared]

    def _work(self, moving: Sequence[str], steps: int) -> LocalWork:
        return LocalWork(
            tuple(moving), GROUPS, self._adam, steps, self.mf_steps, self.tolerance, self.proximal, self._hyper
        )

    def _fresh(self, model: GPModel, personal: State) -> State:
        """A client's state before its first round, with these personal values."""
        moving = personal
        if self.mode == "average":  # it moves the shared ones too, if only for a round at a time
            moving = model.prior.state()
        learned = {name: value for name, value in moving.items() if name not in model.closed_form_noise}
        anchors = personal if self.proximal > 0 else {}
        return (
            with_prefix("personal", personal)
            | with_prefix("adam", self._adam.start(learned))
            | with_prefix("anchor", anchors)
        )

    def _kept(self, data: ClientData, stream: Stream) -> State:
        """The inputs that a client keeps apart from the features, for good."""
        return (
            {"kept": held_out_inputs(data, self._share, replace(stream, purpose="holdout").numpy())}
            if self._share
            else {}
        )

    def _features(self, values: Mapping[str, Tensor]) -> State:
        """The parameters of features among these, if some labels are kept apart from them."""
        return {name: value for name, value in values.items() if self._share and group_of(name) == "features"}

    @staticmethod
    def _values(server: State) -> State:
        return {**strip_prefix(server, "initial"), **strip_prefix(server, "theta"), **strip_prefix(server, "pooled")}
