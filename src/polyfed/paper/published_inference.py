"""What the authors' published code of pFed-Mul computes on a client, where it is not what the paper says.

The numbers in brackets are those of docs/published-code.md. Nothing here is an approximation that anybody would choose: it is
kept so that a published figure can be explained. With E[ω] held fixed, all of it follows from K and the sites (h, r), as in
`gp/linalg.py`; explicit inverses of K are not needed for the same numbers.

>>> x, y = np.arange(10.0)[:, None], np.zeros(10)
>>> data = ClientData(x, {"a": (np.arange(10), y), "b": (np.arange(5), y[:5])}, {"a": None, "b": None})
>>> [batch.counts() for batch in mini_batches(data, 4, np.random.default_rng(0))]  # two labels of a are left out
[{'a': 4, 'b': 4}, {'a': 4, 'b': 1}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.gp import ExactModel, LatentPrediction, Prior, Rows, predict_latents
from polyfed.gp.likelihoods.logistic import log_2cosh_half
from polyfed.gp.linalg import Gaussian, cholesky, solve
from polyfed.methods.gp.model import GPModel, prepared_rows
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.messages import State
from polyfed.modelling.rows import read_out
from polyfed.predictions import Predictions

JITTER = 2e-3  # [8] 1e-3 on the whole matrix and once more on each task's block of it
LEAST_NOISE = 1e-2  # [9]
LEAST_PHI = 1e-5  # [10]


def mini_batches(data: ClientData, size: int, rng: np.random.Generator) -> Iterator[ClientData]:
    """[6] One pass: so many labels of each task at a time, in random order, until the first task has none left."""
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
    """[5] So many steps from m = 0, Σ = I, with the prior ω ~ PG(1, c₀): c² = E[f²] + c₀². [1]

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
