"""Multi-class by the logistic-softmax: p(y = k | f) = sigmoid(f_k/τ) / Σ_c sigmoid(f_c/τ), a row for each class.

Three auxiliary variables make it Gaussian in f: 1/Σσ is an integral over λ > 0; e^{−λσ} is a sum over Poisson
counts n_c; σ(f)^y σ(−f)^n is an integral over ω_c ~ PG(y_c + n_c, 0). With φ = f/τ, mean field gives

    q(ω_c | n_c) = PG(y_c + n_c, c_c),  c_c² = E[φ_c²]
    q(n_c) = Po(γ_c),   log γ_c = ψ(α) − log K − E[φ_c]/2 − log 2cosh(c_c/2)
    q(λ) = Ga(α, K),    α = 1 + Σ_c γ_c

γ is proportional to e^{ψ(α)}, so α solves one scalar equation, α = 1 + s e^{ψ(α)} with s < 1, and E[ω] is always taken
after γ: a stale E[ω] can lower the bound.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.logistic import log_2cosh_half, pg_mean
from polyfed.gp.quadrature import expected_probabilities

NEWTON_STEPS = 30  # converges quadratically from a good start: 5 are enough but for s within 1e-9 of one


class LogisticSoftmax(Likelihood):
    """With a zero-mean prior it is under-confident a priori; a smaller `temperature` makes it bolder."""

    def __init__(self, n_classes: int, *, temperature: float = 1.0, power: float = 1.0) -> None:
        self.n_outputs, self.tau, self.power = n_classes, temperature, power

    def pattern(self, y: Tensor) -> Tensor:
        return torch.eye(self.n_outputs, dtype=torch.float64).expand(y.shape[0], -1, -1)

    def local_bound(self, y: Tensor, m: Tensor, v: Tensor, noise: Tensor | None) -> Tensor:
        phi, c = self._moments(m, v)
        alpha, _ = self._auxiliary(phi, c)
        own = (self._one_hot(y) * (0.5 * phi - log_2cosh_half(c))).sum(-1)
        # With γ at its optimum every other term of the ELBO is in α alone.
        rest = alpha - 1.0 - log(self.n_outputs) + torch.lgamma(alpha) + (1.0 - alpha) * torch.digamma(alpha)
        return own + rest

    def site(self, y: Tensor, m: Tensor, v: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        phi, c = self._moments(m, v)
        _, gamma = self._auxiliary(phi, c)
        hot = self._one_hot(y)
        h = (hot + gamma) * pg_mean(c) / self.tau**2
        return h, 0.5 * (hot - gamma) / self.tau

    def readout(self, mean: Tensor, cov: Tensor, noise: Tensor | None) -> dict[str, Tensor]:
        def probabilities(phi: Tensor) -> Tensor:
            return torch.softmax(torch.nn.functional.logsigmoid(phi), -1)

        return {"proba": expected_probabilities(probabilities, mean / self.tau, cov / self.tau**2)}

    def _one_hot(self, y: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(y.to(torch.int64), self.n_outputs).to(torch.float64)

    def _moments(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m / self.tau, (m.square() + v).sqrt() / self.tau

    def _auxiliary(self, phi: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """α (N,) and γ (N, K) at their joint optimum."""
        K = self.n_outputs
        log_term = -0.5 * phi - log_2cosh_half(c)  # ≤ 0, because c ≥ |φ|
        # 1 − s keeps its digits when s is close to one (all classes far below zero).
        one_minus_s = (-torch.expm1(log_term)).mean(-1).clamp_min(1e-12)
        s = 1.0 - one_minus_s
        alpha = (1.0 - 0.5 * s) / one_minus_s  # e^ψ(α) ~ α − ½
        for _ in range(NEWTON_STEPS):
            e = s * torch.exp(torch.digamma(alpha))
            # g(α) = α − 1 − s e^ψ(α) is increasing and concave: Newton cannot overshoot from the left.
            step = (alpha - 1.0 - e) / (1.0 - e * torch.polygamma(1, alpha))
            alpha = (alpha - step).clamp_min(1.0)
        return alpha, torch.exp(torch.digamma(alpha)[:, None] - log(K) + log_term)
