"""pFed-Mul as its authors' published code has it, so that a published figure can be explained: never for results.

The code of Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of Classification
and Regression", KDD 2025, doi:10.1145/3690624.3709341.

The sharing schemes, the server but for the mean of φ, and the read-out are those of `PFedMul`; a client's work and its
predictions are those of the published code, which docs/published-code.md sets beside the paper and measures.

>>> PFedMulPublished(mode="gradient")
Traceback (most recent call last):
polyfed.errors.ConfigError: mode is 'gradient', and the published code averages; leave it out, or choose the method 'pfed-mul'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch

from polyfed.data import ClientData, FederationSpec, LabelCodec
from polyfed.errors import ConfigError
from polyfed.methods.base import ClientResult, Job, Method, Predictor
from polyfed.methods.gp.model import GPModel, clamped
from polyfed.methods.gp.pfed_mul import PFedMul
from polyfed.methods.gp.states import ClientColumns, Served
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.options import check_number
from polyfed.modelling.rows import rows_of
from polyfed.paper.published_inference import Objective, PublishedPredictor, adamw_step, is_log, mini_batches
from polyfed.seeds import Stream

RATES = {"features": 1e-4, "kernels": 1e-3, "mixing": 1e-3, "noise": 1e-3}
# Options of PFedMul without a meaning here.
ABSENT = ("bound", "proximal", "inducing", "inducing_method", "tolerance", "holdout", "mean", "projection_start")
REMEDY = "leave it out, or choose the method 'pfed-mul'"


@dataclass(frozen=True)
class PFedMulPublished(PFedMul):
    """Options as of `PFedMul`, and those of the published code.

    Args:
        kl_weight: λ, the weight of both KL terms in the objective.
        regression_weight: α, the weight of the regression tasks in the objective.
        batch: labels of each task in a mini-batch.
        mode: `average` alone.
        bound, proximal, inducing, inducing_method, tolerance, holdout, mean, projection_start: as they are; the published code
            has no such option.
        weight_decay: of kernels, mixing weights and features, apart from the gradient (AdamW).
        mf_steps: mean-field steps on each mini-batch, and each of the two times at prediction.
        local_steps: passes over the mini-batches in a round.
        learning_rate: of AdamW, a tenth of it for features; or a dictionary with one for each group.
        join_steps: passes in which a client that joins later learns its personal groups.
    """

    name: ClassVar[str] = "pfed-mul-published"
    summary: ClassVar[str] = "pFed-Mul as its authors' code has it, to explain published figures; not for results"
    kinds: ClassVar[tuple[str, ...] | None] = ("regression", "binary")

    mode: str = "average"
    weight_decay: float = 1e-2
    local_steps: int = 2
    learning_rate: float | Mapping[str, float] = 1e-3
    kl_weight: float = 0.1
    regression_weight: float = 0.5
    batch: int = 32

    @property
    def takes_weights(self) -> bool:
        return False  # nor does the published code

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "gradient":
            raise ConfigError(f"mode is {self.mode!r}, and the published code averages", remedy=REMEDY)
        usual = {option.name: option.default for option in fields(PFedMul)}
        for option in ABSENT:
            if getattr(self, option) != usual[option]:
                what = f"{option} is {getattr(self, option)!r}, and the published code has no such option"
                raise ConfigError(what, remedy=REMEDY)
        check_number("kl_weight", self.kl_weight, least=0)
        check_number("regression_weight", self.regression_weight, least=0)
        check_number("batch", self.batch, whole=True, least=1)

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        _check_tasks(spec.codecs)
        return super().init(spec, stream)

    def model(self, data: ClientData) -> GPModel:
        _check_tasks(data.codecs)
        return super().model(data)

    def start(self, data: ClientData, stream: Stream) -> State:
        """What is personal, and no more: neither the optimiser nor inference remembers anything."""
        return ClientColumns(ClientColumns.from_arrays(super().start(data, stream)).personal).to_arrays()

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        model = self.model(data)
        shared, personal = self._names(model, shared=True), self._names(model, shared=False)
        before = {**{name: message[name] for name in shared}, **ClientColumns.from_arrays(state).personal}
        after, loss = self._learn(model, before, [*shared, *personal], data, self.local_steps, stream.numpy())
        counts, closed = data.counts(), model.closed_form_noise
        one = torch.ones((), dtype=torch.float64)
        update = ClientUpdate(
            {name: after[name] - before[name] for name in shared if name not in closed},
            # The server divides sums by counts: each client that has the task counts once.
            {
                n: (after[n].exp(), one) if counts[n.partition(".")[2]] else (0 * one, 0 * one)
                for n in shared
                if n in closed
            },
            float(sum(counts.values())),
            counts,
            {"bound": -loss},
        )
        return ClientColumns({name: after[name] for name in personal}).to_arrays(), update

    def local_many(self, jobs: Sequence[Job]) -> list[ClientResult]:
        return Method.local_many(self, jobs)  # one by one: mini-batches do not go through the batched solver

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        model, values = self.model(data), Served.from_arrays(server).values
        personal = self._names(model, shared=False)
        after, _ = self._learn(model, values, personal, data, self.join_steps if personal else 0, stream.numpy())
        return ClientColumns({name: after[name] for name in personal}).to_arrays()

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        """[10] As in `PFedMul`, but of φ the mean is taken, not of its logarithm."""
        after, sent = super().aggregate(server, updates), [updates[client] for client in sorted(updates)]
        weights = [1.0 if self.weighting == "uniform" else update.weight for update in sent]
        for name, before in Served.from_arrays(server).theta.items():
            if is_log(name) and sum(weights) > 0:
                phi = [w * (before + update.arrays[name]).exp() for w, update in zip(weights, sent, strict=True)]
                mean = clamped({name: (torch.stack(phi).sum(0) / sum(weights)).log()})
                after |= Served(theta=mean).to_arrays()
        return after

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        model, own = self.model(data), ClientColumns.from_arrays(state or {}).personal
        prior = model.prior.with_values({**Served.from_arrays(server).values, **own})
        return PublishedPredictor(model, prior, data, self.mf_steps)

    def _learn(
        self,
        model: GPModel,
        values: State,
        moving: Sequence[str],
        data: ClientData,
        passes: int,
        rng: np.random.Generator,
    ) -> tuple[State, float]:
        """Θ after some passes over the mini-batches, each with one step, and the sum of the objective in the last pass."""
        objective = Objective(self.kl_weight, self.regression_weight, self.mf_steps)
        learned, loss = [name for name in moving if name not in model.closed_form_noise], 0.0
        for _ in range(passes):
            loss = 0.0
            for batch in mini_batches(data, self.batch, rng):
                prior = model.prior.with_values(values)
                value, noise = objective(prior, rows_of(batch, model.likelihoods))
                leaves = [prior.parameters[name] for name in learned]
                found = torch.autograd.grad(value, leaves, materialize_grads=True) if leaves else ()
                gradient, mine = dict(zip(learned, found, strict=True)), {name: values[name] for name in learned}
                moved = adamw_step(mine, gradient, self._rates(), self.weight_decay)
                known = {f"noise.{task}": sigma2.log() for task, sigma2 in noise.items()}
                values = {**values, **moved, **{name: known[name] for name in known if name in moving}}
                loss += float(value.detach())
        return values, loss

    def _rates(self) -> dict[str, float]:
        super()._rates()  # for its checks
        if isinstance(self.learning_rate, Mapping):
            return {**RATES, **self.learning_rate}
        return {name: self.learning_rate * rate / 1e-3 for name, rate in RATES.items()}


def _check_tasks(codecs: Mapping[str, LabelCodec]) -> None:
    place = "method 'pfed-mul-published'"
    for name, codec in codecs.items():
        if codec.task.kind not in (PFedMulPublished.kinds or ()):
            of_kind = f"task {name!r} is of kind {codec.task.kind!r}"
            what = f"{of_kind}, and the published code has regression and binary tasks alone"
            raise ConfigError(what, where=place, remedy="leave the task out, or choose the method 'pfed-mul'")
        if codec.task.power != 1.0:
            what = f"task {name!r} has power {codec.task.power!r}, and the published code has none"
            remedy = "set kl_weight and regression_weight, or choose the method 'pfed-mul'"
            raise ConfigError(what, where="method 'pfed-mul-published'", remedy=remedy)
