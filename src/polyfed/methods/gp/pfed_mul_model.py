"""What pFed-Mul and its relatives (pfed-hier, pFed-St, the published code) have in common beside their rounds: which parts
of Θ are whose, predictions, late-joining clients, and what a run can say of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyfed.data import ClientData
from polyfed.gp import GROUPS, Rows, group_of
from polyfed.gp.knowledge import Evidence, KnowledgeOf
from polyfed.methods.base import Outlook, Predictor, Question
from polyfed.methods.gp import client_noise, theta_draws
from polyfed.methods.gp.clients import LocalWork, solver_of
from polyfed.methods.gp.model import Averaged, GPModel, PosteriorPredictor, alike, prepared_rows
from polyfed.methods.gp.outlook import outlook_of
from polyfed.methods.gp.pfed_mul_options import PFedMulOptions
from polyfed.methods.gp.predictions import answers
from polyfed.methods.gp.states import Broadcast, ClientColumns, ClientRows, Served, Server
from polyfed.methods.messages import State
from polyfed.predictions import Predictions
from polyfed.predictions.mixture import mixed
from polyfed.seeds import Stream

NOISE_STEPS = 20  # of a client that joins and has a noise level of its own


@dataclass(frozen=True)
class PFedMulModel(PFedMulOptions):
    """A client's model under Θ; options as of `PFedMulOptions`."""

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        model, served, own = self.model(data), Served.from_arrays(server), ClientColumns.from_arrays(state or {})
        draws = theta_draws.draws_in(served.draws) or [{}]
        each = [model.predict({**served.values, **draw, **own.personal}, data) for draw in draws]
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
            if not self._feature_learning.share:  # else some labels were held out where training ended
                predict.begin_at(ClientRows.from_arrays(one.state or {}).warm)
            ready.append(i)
        for group in alike([questions[i].data for i in ready]):
            places = [ready[i] for i in group]
            own = [predictors[i] for i in places]
            found |= zip(places, answers(own, [questions[i].x for i in places]), strict=True)  # pyright: ignore[reportArgumentType]
        return [found[i] for i in range(len(questions))]

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """Personal groups are learned in `join_steps` steps on the client's own data; shared ones stay as they are."""
        model, known = self.model(data), Server.from_arrays(server)
        personal = self._names(model, shared=False)
        state = self._fresh(model, {name: known.values[name] for name in personal})
        rest = ClientRows(held_out=self._feature_learning.chosen(data, stream)).to_arrays()
        steps = self.join_steps if personal else 0
        if not data.n_labels or not (steps or self.client_noise):
            return state.to_arrays() | rest
        values = {name: value[None] for name, value in known.values.items()}
        received = Broadcast.stacked([Broadcast.of(known).to_arrays()])
        knowledge = self._knowledge(model, ClientColumns.unsaid(received, []).evidence, received)
        rows, learned = [prepared_rows(data, model.likelihoods)], dict(state.personal)
        if self.client_noise:
            noise = self._noise_of_late_client(model, rows, values, received, list(known.pooled), knowledge)
            values, learned = values | noise, learned | {name: value[0] for name, value in noise.items()}
        if steps:
            work = self._work(personal, steps)
            memory = self._adam.start({name: values[name] for name in personal}, 1)
            anchors = {name: value[None] for name, value in state.anchors.items()}
            after, _, _ = work.run(model, rows, values, memory, anchors, [None], knowledge)
            learned |= {name: after[name][0] for name in personal}
        return replace(state, personal=learned).to_arrays() | rest

    def _noise_of_late_client(
        self,
        model: GPModel,
        rows: Sequence[Rows],
        values: State,
        received: Broadcast,
        names: Sequence[str],
        knowledge: KnowledgeOf | None,
    ) -> State:
        """What as many rounds would have taught a client about its noise."""
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
            values = values | client_noise.found(step.noise, received, names)
        return {name: values[name] for name in names}

    def outlook(self, server: State, state: State | None, data: ClientData) -> Outlook:
        values = {**Served.from_arrays(server).values, **ClientColumns.from_arrays(state or {}).personal}
        return outlook_of(self.model(data), values, data, steps=self.local_steps, mf_steps=self.mf_steps)

    @property
    def needs_last_round(self) -> bool:
        return self.theta_draws > 0

    def begin_round(self, server: State, rounds_left: int) -> State:
        return theta_draws.asked(Server.from_arrays(server), rounds_left).to_arrays() if self.theta_draws else server

    # ---- what clients may share beside Θ (methods/gp/pfed_hier.py) ---------------------------------------------

    def _knowledge(self, model: GPModel, own: Evidence | None, received: Broadcast) -> KnowledgeOf | None:
        """What clients know of shared functions from the others, without their own evidence; None if there are none."""
        return None

    def explain(self, server: State, data: ClientData) -> dict[str, Any]:
        """Length-scales, noise and the correlation of the tasks, as far as they are shared."""
        return self.model(data).explain(Served.from_arrays(server).values, self._shared, data.codecs)

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

    def _fresh(self, model: GPModel, personal: State) -> ClientColumns:
        """What a client has before its first round, with these personal values."""
        moving = personal
        if self.mode == "average":  # it moves the shared ones too, if only for a round at a time
            moving = model.prior.state()
        learned = {name: value for name, value in moving.items() if name not in model.closed_form_noise}
        return ClientColumns(personal, self._adam.start(learned), personal if self.proximal > 0 else {})
