"""What pFed-Mul and its relatives (pfed-hier, pFed-St, the published code) have in common beside their rounds: which parts
of Θ are whose, predictions, late-joining clients, and what a run can say of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from polyfed.data import ClientData
from polyfed.gp import GROUPS, group_of
from polyfed.gp.knowledge import Evidence, KnowledgeOf
from polyfed.methods.base import Explanation, Outlook, Predictor, Question
from polyfed.methods.gp import theta_draws
from polyfed.methods.gp.client_noise import own_noise
from polyfed.methods.gp.clients import LocalWork
from polyfed.methods.gp.model import Averaged, GPModel, PosteriorPredictor, alike, answers, prepared_rows
from polyfed.methods.gp.pfed_mul_options import PFedMulOptions
from polyfed.methods.gp.states import Broadcast, ClientColumns, ClientRows, Moments, Served, Server
from polyfed.methods.messages import State, scalar
from polyfed.modelling.memory import exact_bytes, holds
from polyfed.predictions import Predictions
from polyfed.predictions.mixture import mixed
from polyfed.seeds import Stream

NOISE_STEPS = 20  # of a client that joins and has a noise level of its own
# Each entry of a covariance is made for every latent and gone through many times, at the speed of memory and not of products:
# as long as PER_ENTRY operations, by what a round of 10,000 clients of 160 rows takes.
PER_ENTRY = 3000.0
SETTLING = 10  # mean-field steps until predictions stand still, about; one where all sites are fixed
SPARED = 1000  # rows beyond which inducing inputs would spare time


@dataclass(frozen=True)
class PFedMulModel(PFedMulOptions):
    """A client's model under Θ; options as of `PFedMulOptions`."""

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        model, served, own = self.model(data), Served.from_arrays(server), ClientColumns.from_arrays(state or {})
        draws = theta_draws.draws_in(served.draws) or [{}]
        each = [model.predict({**served.values, **draw, **own.personal}, data) for draw in draws]
        return Averaged(each) if len(each) > 1 else each[0]

    def predict_many(self, server: State, questions: Sequence[Question]) -> list[Predictions]:
        said: list[list[Predictions]] = [[] for _ in questions]  # by each of its priors
        ready: list[tuple[int, PosteriorPredictor]] = []
        for i, one in enumerate(questions):
            predict = self.predictor(server, one.state, one.data)
            parts = predict.parts if isinstance(predict, Averaged) else [predict]
            ready += [(i, part) for part in parts if isinstance(part, PosteriorPredictor)]
            # A method may predict in another way.
            said[i] += [part(one.x) for part in parts if not isinstance(part, PosteriorPredictor)]
        for i, part in ready:
            if not self._feature_learning.share:  # else some labels were held out where training ended
                part.begin_at(ClientRows.from_arrays(questions[i].state or {}).warm)
        for group in alike([questions[i].data for i, _ in ready]):
            places, parts = zip(*(ready[k] for k in group), strict=True)
            for i, found in zip(places, answers(parts, [questions[i].x for i in places]), strict=True):
                said[i].append(found)
        return [mixed(own) for own in said]

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """Personal groups are learned in `join_steps` steps on the client's own data; shared ones stay as they are."""
        model, known = self.model(data), Server.from_arrays(server)
        personal = self._names(model, shared=False)
        state = self._fresh(model, {name: known.values[name] for name in personal})
        rest = self._feature_learning.chosen(data, stream)
        steps = self.join_steps if personal else 0
        if not data.n_labels or not (steps or self.client_noise):
            return state.to_arrays() | rest
        values = {name: value[None] for name, value in known.values.items()}
        received = Broadcast.stacked([Broadcast.of(known).to_arrays()])
        knowledge = self._knowledge(model, ClientColumns.unsaid(received, []).evidence, received)
        rows, learned, start = [prepared_rows(data, model.likelihoods)], [*personal], [None]
        if self.client_noise:  # what as many rounds would have taught it about its noise
            learned += known.pooled
            for _ in range(NOISE_STEPS):
                _, _, start = self._work([], 1, ()).run(model, rows, values, Moments(), {}, start, knowledge)
                values = values | own_noise(start.noise, received, list(known.pooled))
        if steps:
            memory = self._adam.start({name: values[name] for name in personal}, 1)
            anchors = {name: value[None] for name, value in state.anchors.items()}
            values, _, _ = self._work(personal, steps).run(model, rows, values, memory, anchors, [None], knowledge)
        return replace(state, personal={name: values[name][0] for name in learned}).to_arrays() | rest

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        """Operations by counting, so that nobody waits for hours unwarned."""
        model, steps, mf_steps = self.model(data), self.local_steps, self.mf_steps
        values = {**Served.from_arrays(server).values, **ClientColumns.from_arrays(state or {}).personal}
        rows, sparsity = prepared_rows(data, model.likelihoods), model.config.sparsity
        n_rows, n_latents = len(rows), model.prior.n_latents
        settling = 1 if rows.n_fixed == n_rows else SETTLING
        if sparsity.points_for(n_rows, n_latents) is None:
            cube, square = float(n_rows) ** 3, PER_ENTRY * n_latents * float(n_rows) ** 2
            # A factor is a third of a cube; its inverse, which variances and the gradient want, five thirds.
            work = steps * ((mf_steps + 5) * cube / 3 + square)
            return Outlook(work, (settling + 5) * cube / 3 + square, exact=work if n_rows > SPARED else 0.0)
        with torch.no_grad():
            Z = sparsity.choose(model.prior.with_values(values), rows)
        n_inducing = 0 if Z is None else len(Z)
        # For each input products of its features with each other, and with L⁻¹; for the gradient twice as many, and anew.
        wide = 2.0 * len(data.x) * float(n_latents * n_inducing) ** 2
        chosen = n_inducing if sparsity.points is None else None
        return Outlook(steps * (mf_steps + 4) * wide, settling * wide, chosen, holds(exact_bytes(n_rows, n_latents)))

    @property
    def needs_last_round(self) -> bool:
        return self.theta_draws > 0

    def begin_round(self, server: State, rounds_left: int) -> State:
        if not self.theta_draws:
            return server
        curving = None if rounds_left else scalar(1.0)  # in the last round second derivatives are asked for
        return replace(Server.from_arrays(server), curving=curving).to_arrays()

    def _knowledge(self, model: GPModel, own: Evidence | None, received: Broadcast) -> KnowledgeOf | None:
        """What clients know of shared functions from the others, without their own evidence; None if there are none."""
        return None

    def explain(self, server: State, data: ClientData) -> Explanation:
        """Length-scales, noise and the correlation of the tasks, as far as they are shared."""
        return self.model(data).explain(Served.from_arrays(server).values, self._shared, data.codecs)

    def model(self, data: ClientData) -> GPModel:
        return self._model_config().model(data.codecs, data.n_features)

    def _names(self, model: GPModel, *, shared: bool) -> list[str]:
        return [name for name in model.prior.parameters if (group_of(name) in self._shared) == shared]

    def _work(self, moving: Sequence[str], steps: int, groups: Sequence[str] = GROUPS) -> LocalWork:
        inference = steps, self.mf_steps, self.tolerance
        return LocalWork(tuple(moving), tuple(groups), self._adam, *inference, self.proximal, self._hyper)

    def _fresh(self, model: GPModel, personal: State) -> ClientColumns:
        """What a client has before its first round, with these personal values."""
        # In mode average it moves the shared ones too, if only for a round at a time.
        moving = model.prior.state() if self.mode == "average" else personal
        learned = {name: value for name, value in moving.items() if name not in model.closed_form_noise}
        return ClientColumns(personal, self._adam.start(learned), personal if self.proximal > 0 else {})
