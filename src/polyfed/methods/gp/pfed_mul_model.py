"""What pFed-Mul and its relatives (pfed-hier, pFed-St, the published code) have in common beside their rounds: which parts
of Θ are whose, predictions, late-joining clients, and what a run can say of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyfed.data import ClientData
from polyfed.gp import GROUPS, group_of
from polyfed.gp.knowledge import KnowledgeOf
from polyfed.methods.base import Outlook, Predictor, Question
from polyfed.methods.gp import client_noise, theta_draws
from polyfed.methods.gp.clients import LocalWork, solver_of
from polyfed.methods.gp.model import Averaged, GPModel, PosteriorPredictor, alike, prepared_rows
from polyfed.methods.gp.outlook import outlook_of
from polyfed.methods.gp.pfed_mul_options import PFedMulOptions
from polyfed.methods.gp.predictions import answers
from polyfed.methods.gp.state_batch import States, marginals_in
from polyfed.methods.messages import State, strip_prefix, with_prefix
from polyfed.predictions import Predictions
from polyfed.predictions.mixture import mixed
from polyfed.seeds import Stream

NOISE_STEPS = 20  # of a client that joins and has a noise level of its own


@dataclass(frozen=True)
class PFedMulModel(PFedMulOptions):
    """A client's model under Θ; options as of `PFedMulOptions`."""

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
            if not self._feature_learning.share:  # else some labels were held out where training ended
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
        state = self._fresh(
            model, {name: self._values(server)[name] for name in personal}
        ) | self._feature_learning.chosen(data, stream)
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
        """What as many rounds would have taught a client about its noise."""
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
        """What clients with these states know of shared functions, after this message of the server; None if there are none."""
        return None

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

    @staticmethod
    def _values(server: State) -> State:
        return {**strip_prefix(server, "initial"), **strip_prefix(server, "theta"), **strip_prefix(server, "pooled")}
