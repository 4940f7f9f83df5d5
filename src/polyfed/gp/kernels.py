"""Base kernels k(x, x') = φ₀ · shape(x, x'), one for each latent function.

φ₀ is the amplitude and φ₁ the inverse squared length-scale, one number or one for each input dimension. The
forms are the paper's (app.experiment); its Cauchy and linear kernels are the case φ₀ = 1.

| name       | shape                                            |
|------------|--------------------------------------------------|
| `rbf`      | exp(−½ Σ_d φ₁_d (x_d − x'_d)²)                   |
| `laplace`  | exp(−½ Σ_d φ₁_d abs(x_d − x'_d))                 |
| `cauchy`   | 1 / (1 + Σ_d φ₁_d (x_d − x'_d)²)                 |
| `matern32` | (1 + √3 ρ) exp(−√3 ρ),  ρ² = Σ_d φ₁_d (x_d − x'_d)² |
| `matern52` | (1 + √5 ρ + 5ρ²/3) exp(−√5 ρ)                    |
| `linear`   | ⟨x, x'⟩ of inputs scaled to length one; no φ₁     |

>>> x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
>>> KERNELS["rbf"](x, x, torch.tensor([0.25], dtype=torch.float64))[0, 1].item()  # exp(−½ · 0.25 · 4)
0.6065306597126334
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor

Shape = Callable[[Tensor, Tensor, Tensor], Tensor]


def squared_distance(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    """Σ_d φ₁_d (x_d − x'_d)² for all pairs, by one matrix product."""
    # Centring first keeps the digits when the data lie far from the origin.
    centre = x.mean(-2, keepdim=True) if x.shape[-2] else x.new_zeros(1)
    scale = phi1.sqrt()
    a, b = (x - centre) * scale, (x2 - centre) * scale
    d2 = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2.0 * a @ b.mT
    return d2.clamp_min(0.0)


def _rho(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    # √ has no derivative at zero; a floor far below any distance of interest gives the right limit, 0.
    return squared_distance(x, x2, phi1).clamp_min(1e-30).sqrt()


def rbf(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    return torch.exp(-0.5 * squared_distance(x, x2, phi1))


def laplace(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    return torch.exp(-torch.cdist(x * (0.5 * phi1), x2 * (0.5 * phi1), p=1.0))


def cauchy(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    return 1.0 / (1.0 + squared_distance(x, x2, phi1))


def matern32(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    z = sqrt(3.0) * _rho(x, x2, phi1)
    return (1.0 + z) * torch.exp(-z)


def matern52(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    z = sqrt(5.0) * _rho(x, x2, phi1)
    return (1.0 + z + z.square() / 3.0) * torch.exp(-z)


def linear(x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
    def unit(t: Tensor) -> Tensor:
        return t / t.norm(dim=-1, keepdim=True).clamp_min(1e-12)  # the zero vector stays zero

    return unit(x) @ unit(x2).mT


@dataclass(frozen=True)
class Kernel:
    """A shape, and how its φ₁ follows from a length-scale: φ₁ = factor · length^(−exponent)."""

    shape: Shape
    factor: float = 1.0
    exponent: float = 2.0  # 0 for a kernel without length-scale

    @property
    def has_length_scale(self) -> bool:
        return self.exponent > 0.0

    def log_phi1(self, length_scale: Tensor) -> Tensor:
        return log(self.factor) - self.exponent * length_scale.log()

    def length_scale(self, log_phi1: Tensor) -> Tensor:
        return ((log(self.factor) - log_phi1) / self.exponent).exp()

    def __call__(self, x: Tensor, x2: Tensor, phi1: Tensor) -> Tensor:
        return self.shape(x, x2, phi1)

    def diagonal(self, x: Tensor, phi1: Tensor) -> Tensor:
        """shape(x, x) for each input, without the matrix: every input is a batch of its own."""
        alone = x[..., :, None, :]
        return self.shape(alone, alone, phi1)[..., 0, 0]


KERNELS: dict[str, Kernel] = {
    "rbf": Kernel(rbf),
    "laplace": Kernel(laplace, factor=2.0, exponent=1.0),
    "cauchy": Kernel(cauchy),
    "matern32": Kernel(matern32),
    "matern52": Kernel(matern52),
    "linear": Kernel(linear, exponent=0.0),
}
