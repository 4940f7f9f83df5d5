"""pFed-Mul as its authors' published code has it, so that a published figure can be explained: never for results.

The code of Lyu, Zhang, Lu, Zhou: "Task Diversity in Bayesian Federated Learning: Simultaneous Processing of Classification
and Regression", KDD 2025, doi:10.1145/3690624.3709341.

The sharing schemes, the server but for the mean of φ, and the read-out are those of `PFedMul`; a client's work and its
predictions are those of the published code, which docs/published-code.md sets beside the paper and measures: the numbers
in brackets are those of that page. Nothing here is an approximation that anybody would choose. With E[ω] held fixed, all of
it follows from K and the sites (h, r), as in `gp/linalg.py`; explicit inverses of K are not needed for the same numbers.

>>> PFedMulPublished(mode="gradient")
Traceback (most recent call last):
polyfed.errors.ConfigError: mode is 'gradient', and the published code averages; leave it out, or choose the method 'pfed-mul'.
>>> x, y = np.arange(10.0)[:, None], np.zeros(10)
>>> data = ClientData(x, {"a": (np.arange(10), y), "b": (np.arange(5), y[:5])}, {"a": None, "b": None})
>>> [batch.counts() for batch in mini_batches(data, 4, np.random.default_rng(0))]  # two labels of a are left out
[{'a': 4, 'b': 4}, {'a': 4, 'b': 1}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import log
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec, LabelCodec
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, LatentPrediction, Prior, Rows, predict_latents
from polyfed.gp.likelihoods.logistic import log_2cosh_half
from polyfed.gp.linalg import Gaussian, cholesky, solve
from polyfed.methods.base import ClientResult, Job, Method, Predictor
from polyfed.methods.gp.model import GPModel, clamped, prepared_rows
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.pfed_mul import PFedMul
from polyfed.methods.gp.states import ClientColumns, Served
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.options import check_number
from polyfed.modelling.rows import read_out, rows_of
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

JITTER = 2e-3  # [8] 1e-3 on the whole matrix and once more on each task's block of it
LEAST_NOISE = 1e-2  # [9]
LEAST_PHI = 1e-5  # [10]
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
            raise ConfigError(what, where=place, remedy=remedy)


def mini_batches(data: ClientData, size: int, rng: np.random.Generator) -> Iterator[ClientData]:
    """[6] One pass: `size` labels of each task at a time, in random order, until the first task has none left."""
    tasks = [task for task, count in data.counts().items() if count]
    cuts = [np.split(rng.permutation(n), range(size, n, size)) for n in (len(data.labels[task][1]) for task in tasks)]
    for chosen in zip(*cuts, strict=False):
        x, seen, start = [], {}, 0
        for task, order in zip(tasks, chosen, strict=True):
            at, y = data.labels[task]
            x.append(data.x[at[order]])
            seen[task] = (np.arange(start, start + len(order)), y[order])
            start += len(order)
        yield ClientData(np.concatenate(x), seen, data.codecs)


def jittered(K: Tensor) -> Tensor:
    """[8] K as the published code has it; symmetrised, because `lmc_covariance` wants a symmetric gradient."""
    return 0.5 * (K + K.mT) + JITTER * torch.eye(K.shape[-1], dtype=K.dtype)


def mean_field(
    prior: Prior, rows: Rows, K: Tensor, c0_squared: Tensor, steps: int, before: Gaussian | None
) -> Gaussian:
    """[5] `steps` steps from m = 0, Σ = I, with the prior ω ~ PG(1, c₀): c² = E[f²] + c₀². [1]

    `before` is the posterior that serves as the prior of f; being N(0, K) times sites, it adds its sites. [7]
    """
    m, v = torch.zeros_like(c0_squared), torch.ones_like(c0_squared)
    q: Gaussian | None = None
    for _ in range(steps):
        h, r = rows.sites(prior, m, v + c0_squared)
        q = solve(K, r, h) if before is None else solve(K, r + before.r, h + before.h)
        m, v = q.m, q.v
    assert q is not None
    return q


@dataclass(frozen=True)
class Objective:
    """[3] λ (KL of f + KL of ω) − α E[log p] of regression − E[log p] of classification, to be minimised."""

    kl_weight: float
    regression_weight: float
    mf_steps: int

    def __call__(self, prior: Prior, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Its value on these rows, differentiable in Θ, and σ² of each regression task."""
        K = jittered(ExactModel(prior, rows).K)
        c0_squared = K.diagonal()
        q = mean_field(prior, rows, K.detach(), c0_squared.detach(), self.mf_steps, None)
        # [4] m and Σ are differentiated as functions of K, with E[ω], which is the h of classification, held fixed.
        m, v, kl_f = _moments(K, q.h, q.r)
        n = rows.n_fixed  # rows of regression come first
        E_omega, c_squared, c0_squared = q.h[n:], m[n:].square() + v[n:], c0_squared[n:]
        # [2] Three c's meet: of q(f) as it is now, of the prior, and of the step before, which made E[ω].
        log_cosh = log_2cosh_half(c_squared.sqrt()) - log_2cosh_half(c0_squared.sqrt())
        kl_omega = (log_cosh + 0.5 * E_omega * (c0_squared - c_squared)).sum()
        classification = (q.r[n:] * m[n:] - 0.5 * E_omega * c_squared - log(2.0)).sum()
        # [9] σ² from this mini-batch, and in the objective at once.
        statistics = rows.noise_statistics(prior, m, v)
        noise = {task: (total / count).clamp_min(LEAST_NOISE) for task, (total, count) in statistics.items()}
        regression = m.new_zeros(())
        for block in rows.blocks:
            if block.task in noise:
                fit = block.likelihood.local_bound(block.y, block.of(m), block.of(v), noise[block.task])
                regression = regression + fit.sum()
        return self.kl_weight * (kl_f + kl_omega) - self.regression_weight * regression - classification, noise


def _moments(K: Tensor, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """m, diag Σ and KL(q(f)‖p(f)) as functions of K, with a graph; `solve` of the same has none."""
    s = h.sqrt()
    L = cholesky(torch.eye(len(h), dtype=K.dtype) + s[:, None] * K * s)  # B = I + S K S
    B_inv = torch.cholesky_inverse(L)
    alpha = s * (B_inv @ (r / s))
    m, v = K @ alpha, (1.0 - B_inv.diagonal()) / h
    # ½ (log|K| − log|Σ| − N + tr K⁻¹Σ + mᵀK⁻¹m), with K⁻¹Σ = S⁻¹ B⁻¹ S and K⁻¹m = α
    kl = L.diagonal().log().sum() + 0.5 * (B_inv.diagonal().sum() - len(h) + m @ alpha)
    return m, v, kl


def adamw_step(values: State, gradient: Mapping[str, Tensor], rates: Mapping[str, float], decay: float) -> State:
    """[11] The first step of a new AdamW, down, on φ itself instead of its logarithm; it decays φ and W towards zero. [10]"""
    natural = {name: value.exp() if is_log(name) else value for name, value in values.items()}
    # ∂/∂φ = ∂/∂log φ / φ
    ascent = {name: -gradient[name] / natural[name] if is_log(name) else -gradient[name] for name in values}
    new = Adam(rates, decays=dict.fromkeys(rates, decay), together={})  # torch's AdamW
    moved, _ = new.step(natural, ascent, new.start(natural))
    return {name: value.clamp_min(LEAST_PHI).log() if is_log(name) else value for name, value in moved.items()}


def is_log(name: str) -> bool:
    """Whether Θ holds the logarithm of this parameter of a kernel."""
    return name.rpartition(".")[2].startswith("log_")


class PublishedPredictor:
    """[7] The posterior of a client's data with that same posterior as its prior: every label counts twice."""

    def __init__(self, model: GPModel, prior: Prior, data: ClientData, mf_steps: int) -> None:
        self.model, self.prior, self.data, self.mf_steps = model, prior, data, mf_steps

    def __call__(self, x: np.ndarray) -> Predictions:
        gp, q = self._posterior
        latents = predict_latents(gp, q, torch.from_numpy(x))
        unsure = _Unsure(latents.mean, latents.cov, latents.mixing)
        return read_out(unsure, self.prior, self.model.likelihoods, self.data.codecs)

    @cached_property
    def _posterior(self) -> tuple[ExactModel, Gaussian]:
        rows = prepared_rows(self.data, self.model.likelihoods)
        with torch.no_grad():
            gp = ExactModel(self.prior, rows)
            K = jittered(gp.K)
            once = mean_field(self.prior, rows, K, torch.zeros(len(rows), dtype=K.dtype), self.mf_steps, None)
            # [1] c₀ is zero at first, other than in training, and then whatever the first time has left.
            return gp, mean_field(self.prior, rows, K, once.second_moment, self.mf_steps, once)


class _Unsure(LatentPrediction):
    """[8] The jitter of a covariance of test inputs, on the variance of every output."""

    def outputs(self, W: Tensor) -> tuple[Tensor, Tensor]:
        mean, cov = super().outputs(W)
        return mean, cov + JITTER * torch.eye(W.shape[0], dtype=cov.dtype)
