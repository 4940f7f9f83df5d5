"""The E-step of gpytorch on the paper's synthetic task: LMCVariationalStrategy with natural gradients.

Both sides know the true hyper-parameters and bound the same log evidence, a sum over all data. gpytorch's family
factorises over the latent functions, which costs it nats; and it takes gradient steps where polyfed has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, pi

import gpytorch
import torch
from gpytorch.variational import LMCVariationalStrategy, NaturalVariationalDistribution, VariationalStrategy
from torch import Tensor
from torch.nn.functional import logsigmoid

from polyfed.gp import ExactModel, Prior, Rows, infer

from .harness import Line, Spread, Target, take_turns
from .problems import AMPLITUDES, INVERSE_SQUARED_LENGTHS, MIXING, NOISE, PaperTask

DEFAULT_RATE = 0.1  # of gpytorch's NGD
RATES = (DEFAULT_RATE, 0.35, 0.7, 0.9)  # to choose from in hindsight; at 1.0 the two latents overshoot each other
CLOSE = 0.1  # nats below its own best bound at which the rival is called done
BOUNDS = ("polya-gamma", "gaussian")  # of log sigmoid; "gaussian" is its expectation by quadrature


def against_gpytorch(
    *, n_regression: int = 50, n_binary: int = 100, inducing: int = 100, seeds: int, climb: int = 100, repeats: int
) -> list[Line]:
    """Time to converge over ours, and by how much our bound is higher; for both bounds of the binary task."""
    lines = []
    for bound in BOUNDS:
        tuned, default, nats = [], [], []
        for seed in range(seeds):
            task = PaperTask.draw(n_regression=n_regression, n_binary=n_binary, seed=seed)
            grid = torch.linspace(0.0, 100.0, inducing, dtype=torch.float64)[:, None]
            rivals = [Rival(task, grid, bound, rate) for rate in RATES]
            climbs = {rival.rate: rival.climb(3 * climb if rival.rate == DEFAULT_RATE else climb) for rival in rivals}
            best = max(max(bounds) for bounds in climbs.values())
            steps = {rate: _steps_to(best - CLOSE, bounds) for rate, bounds in climbs.items()}
            mine = Ours(task.prior(), task.rows(bound))
            nats.append(mine.converge() - best)
            fastest = min(RATES, key=lambda rate: steps[rate])
            for rate, ratios, often in ((fastest, tuned, repeats), (DEFAULT_RATE, default, 1)):
                rival = replace(rivals[0], rate=rate)
                turns = take_turns(
                    lambda rival=rival, n=steps[rate]: rival.climb(n),
                    mine.converge,
                    repeats=often,
                    warm_ups=often // 2,  # a long run needs none
                )
                ratios += [a / b for a, b in zip(turns.a, turns.b, strict=True)]
        name = f"gpytorch LMC, {bound}"
        note = f"E-step alone; {seeds} draws, {inducing} inducing points"
        lines += [
            Line(f"{name}, time, best rate", Spread.of(tuned), target=Target("≥", 200.0), note=note),
            Line(f"{name}, time, default rate", Spread.of(default), note=note),
            Line(f"{name}, our gain", Spread.of(nats), "nats", Target("≥", 8.0), note),
        ]
    return lines


@dataclass(frozen=True)
class Ours:
    """polyfed's run on one task."""

    prior: Prior
    rows: Rows

    def converge(self) -> float:
        """The bound, converged to 1e-6 nats; the covariance is built anew, as the rival builds its model."""
        with torch.no_grad():
            return infer(ExactModel(self.prior, self.rows), tolerance=1e-6).bound


def _steps_to(level: float, bounds: list[float]) -> int:
    """How many evaluations it took to reach a level; all of them if that never happened, which flatters the rival."""
    return next((i + 1 for i, bound in enumerate(bounds) if bound >= level), len(bounds))


class Lmc(gpytorch.models.ApproximateGP):
    """Two latents and two outputs with the paper's parameters; only q(u) is free."""

    def __init__(self, inducing: Tensor) -> None:
        latents = torch.Size([len(AMPLITUDES)])
        strategy = LMCVariationalStrategy(
            VariationalStrategy(
                self,
                inducing,
                NaturalVariationalDistribution(len(inducing), batch_shape=latents, mean_init_std=0.0),
                learn_inducing_locations=False,
            ),
            num_tasks=len(MIXING),
            num_latents=len(AMPLITUDES),
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=latents)
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.RBFKernel(batch_shape=latents), batch_shape=latents
        )
        self.double()
        lengths = torch.tensor(INVERSE_SQUARED_LENGTHS, dtype=torch.float64).rsqrt()
        self.covar_module.outputscale = torch.tensor(AMPLITUDES, dtype=torch.float64)
        self.covar_module.base_kernel.lengthscale = lengths[:, None, None]
        strategy.lmc_coefficients.data = torch.tensor(MIXING, dtype=torch.float64).mT.contiguous()
        for name, parameter in self.named_parameters():  # hyper-parameters stay: no gradient is spent on them
            parameter.requires_grad_("natural" in name)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Rival:
    """gpytorch's run on one task: rows, what it maximises and how fast."""

    task: PaperTask
    inducing: Tensor
    bound: str  # of log sigmoid: "polya-gamma" in closed form, "gaussian" by quadrature
    rate: float

    def elbo(self, model: Lmc) -> Tensor:
        n = len(self.task.y_regression)
        x = torch.cat([self.task.x_regression, self.task.x_binary])
        which = (torch.arange(len(x)) >= n).long()
        q = model(x, task_indices=which)
        m, v = q.mean, q.variance
        residual = (self.task.y_regression - m[:n]).square() + v[:n]
        gaussian = -0.5 * (residual / NOISE + log(2 * pi * NOISE)).sum()
        return gaussian + self._logistic(m[n:], v[n:]).sum() - model.variational_strategy.kl_divergence()

    def _logistic(self, m: Tensor, v: Tensor) -> Tensor:
        y = self.task.y_binary
        if self.bound == "gaussian":
            rule = gpytorch.utils.quadrature.GaussHermiteQuadrature1D().double()
            return rule(lambda f: logsigmoid(y * f), torch.distributions.Normal(m, v.sqrt()))
        c = (m.square() + v).sqrt()
        return 0.5 * (y * m - c) + logsigmoid(c)  # −log 2 − log cosh(c/2) = log sigmoid(c) − c/2

    def climb(self, steps: int) -> list[float]:
        """The bound before each of `steps` natural gradient steps."""
        model = Lmc(self.inducing)
        optimiser = gpytorch.optim.NGD(model.variational_parameters(), num_data=1, lr=self.rate)
        model.train()
        bounds = []
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -self.elbo(model)
            loss.backward()
            optimiser.step()
            bounds.append(-loss.item())
        return bounds
