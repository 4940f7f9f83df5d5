"""The data of the benchmarks: random mixed clients, and the synthetic task of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from polyfed.gp import Prior, Rows
from polyfed.gp.likelihoods import Bernoulli, Gaussian, Likelihood

# The synthetic task of the paper.
AMPLITUDES = (1.0, 2.0)  # φ₀ of both latents
INVERSE_SQUARED_LENGTHS = (0.02, 0.01)  # φ₁
MIXING = ((0.6, 0.4), (0.4, 0.6))  # W, a row for each task
NOISE = 0.1  # σ²


def likelihoods(bound: str = "polya-gamma") -> dict[str, Likelihood]:
    return {"level": Gaussian(), "event": Bernoulli(bound=bound)}


def mixed_prior(dims: int) -> Prior:
    """Two RBF latents whose length-scale is the typical distance of standard normal inputs."""
    prior = Prior(kernels=["rbf", "rbf"], dims=dims, outputs={"level": 1, "event": 1}, noise={"level": NOISE})
    start = {f"kernels.{b}.log_phi1": torch.tensor([log((b + 1) / (2.0 * dims))]) for b in range(2)}
    start |= {"mixing.level": torch.tensor([[0.8, 0.4]]), "mixing.event": torch.tensor([[0.4, 0.8]])}
    return prior.load({name: value.double() for name, value in start.items()})


def mixed_rows(n_rows: int, dims: int, seed: int) -> Rows:
    """A client with one label at each of its inputs, in half of them a number and in half yes or no."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n_rows, dims, dtype=torch.float64, generator=generator)
    slope = torch.randn(dims, dtype=torch.float64, generator=generator)
    f = torch.sin(x @ slope / dims**0.5 * 2.0) + 0.3 * torch.randn(n_rows, dtype=torch.float64, generator=generator)
    half = n_rows // 2
    at = torch.arange(n_rows)
    y = torch.where(f[half:] > 0, 1.0, -1.0).double()
    return Rows.of(x, {"level": (at[:half], f[:half]), "event": (at[half:], y)}, likelihoods())


@dataclass(frozen=True)
class PaperTask:
    """One client of the paper's synthetic task, drawn from the model itself."""

    x_regression: Tensor
    y_regression: Tensor
    x_binary: Tensor
    y_binary: Tensor  # -1 or 1

    @classmethod
    def draw(cls, *, n_regression: int, n_binary: int, seed: int) -> PaperTask:
        generator = torch.Generator().manual_seed(seed)
        n = n_regression + n_binary
        x = 100.0 * torch.rand(n, 1, dtype=torch.float64, generator=generator)
        d2 = (x - x.mT).square()
        g = []
        for amplitude, phi1 in zip(AMPLITUDES, INVERSE_SQUARED_LENGTHS, strict=True):
            K = amplitude * torch.exp(-0.5 * phi1 * d2)
            L = torch.linalg.cholesky(K + 1e-8 * torch.eye(n, dtype=torch.float64))
            g.append(L @ torch.randn(n, dtype=torch.float64, generator=generator))
        f = torch.tensor(MIXING, dtype=torch.float64) @ torch.stack(g)
        noise = torch.randn(n_regression, dtype=torch.float64, generator=generator)
        coin = torch.rand(n_binary, dtype=torch.float64, generator=generator)
        yes = coin < torch.sigmoid(f[1, n_regression:])
        return cls(
            x[:n_regression],
            f[0, :n_regression] + NOISE**0.5 * noise,
            x[n_regression:],
            torch.where(yes, 1.0, -1.0).double(),
        )

    def prior(self) -> Prior:
        """With the parameters that made the data."""
        prior = Prior(kernels=["rbf", "rbf"], dims=1, outputs={"level": 1, "event": 1}, noise={"level": NOISE})
        truth = {f"mixing.{task}": torch.tensor([MIXING[i]]) for i, task in enumerate(("level", "event"))}
        for b in range(2):
            truth[f"kernels.{b}.log_amplitude"] = torch.tensor(log(AMPLITUDES[b]))
            truth[f"kernels.{b}.log_phi1"] = torch.tensor([log(INVERSE_SQUARED_LENGTHS[b])])
        return prior.load({name: value.double() for name, value in truth.items()})

    def rows(self, bound: str = "polya-gamma") -> Rows:
        n, m = len(self.y_regression), len(self.y_binary)
        seen = {"level": (torch.arange(n), self.y_regression), "event": (torch.arange(n, n + m), self.y_binary)}
        return Rows.of(torch.cat([self.x_regression, self.x_binary]), seen, likelihoods(bound))
