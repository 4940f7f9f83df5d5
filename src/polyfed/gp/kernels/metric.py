"""Kernels s(t) of a metric that gives t and a profile s, with their derivatives written out.

Rasmussen, Williams: "Gaussian Processes for Machine Learning", MIT Press 2006, doi:10.7551/mitpress/3206.001.0001, chapter
4; Matérn: "Spatial Variation", 2nd edition, Springer 1986, doi:10.1007/978-1-4615-7892-5.

φ₀ is the amplitude and φ₁ the inverse squared length-scale, one number or one for each input dimension. The forms are
the paper's (app.experiment, app. F); its Cauchy and linear kernels are the case φ₀ = 1.

| name       | t                          | s(t)                            |
|------------|----------------------------|---------------------------------|
| `rbf`      | Σ_d φ₁_d (x_d − x'_d)²     | exp(−t/2)                       |
| `laplace`  | Σ_d φ₁_d abs(x_d − x'_d)   | exp(−t/2)                       |
| `cauchy`   | Σ_d φ₁_d (x_d − x'_d)²     | 1 / (1 + t)                     |
| `matern32` | Σ_d φ₁_d (x_d − x'_d)²     | (1 + z) exp(−z), z = √(3t)      |
| `matern52` | Σ_d φ₁_d (x_d − x'_d)²     | (1 + z + z²/3) exp(−z), z = √(5t) |
| `linear`   | ⟨x, x'⟩ at length one      | t; there is no φ₁               |
| `affine`   | the same with a constant   | t; there is no φ₁               |

With one φ₁ for all dimensions t is φ₁ times a distance that no parameter changes: it is computed once. All functions
take leading batch dimensions: x is (..., N, D), φ₁ is (..., 1) or (..., D).

>>> x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
>>> rbf(x, x, {"phi1": torch.tensor([0.25], dtype=torch.float64)})[0, 1].item()  # exp(−½ · 0.25 · 4)
0.6065306597126334
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.kernels.base import Kernel, Phi, Positive
from polyfed.gp.kernels.distances import (
    absolute_by_input,
    absolute_distance,
    affine_cosine,
    cosine,
    squared_by_input,
    squared_distance,
    unit,
    with_constant,
)

if TYPE_CHECKING:
    from jaxtyping import Float

# ---- profiles: s(t), its logarithmic slope t s'(t) / s(t) and s'(t), where t = φ₁ d ----------------------------------------
# They take d and φ₁ apart: for the exponential, t itself is never needed, and each pass over a matrix counts.

Scale = Tensor | float
Slope = tuple[Tensor, Scale]  # a matrix, and a number by which all of it is to be multiplied


def _exponential(d: Tensor, phi1: Scale) -> Tensor:
    exponent = -0.5 * phi1 * d
    return torch.exp(exponent) if exponent.requires_grad else exponent.exp_()


def _exponential_slope(d: Tensor, phi1: Scale) -> Slope:
    return d, -0.5 * phi1


def _exponential_derivative(t: Tensor, s: Tensor) -> Tensor:
    return -0.5 * s


def _rational(d: Tensor, phi1: Scale) -> Tensor:
    return 1.0 / (1.0 + phi1 * d)


def _rational_slope(d: Tensor, phi1: Scale) -> Slope:
    t = phi1 * d
    return t / (1.0 + t), -1.0


def _rational_derivative(t: Tensor, s: Tensor) -> Tensor:
    return -s.square()


def _root(t: Tensor) -> Tensor:
    # √ has no derivative at zero; a floor far below any distance of interest gives the right limit, 0.
    return t.clamp_min(1e-30).sqrt()


def _matern32(d: Tensor, phi1: Scale) -> Tensor:
    z = _root(3.0 * phi1 * d)
    return (1.0 + z) * torch.exp(-z)


def _matern32_slope(d: Tensor, phi1: Scale) -> Slope:
    z = _root(3.0 * phi1 * d)
    return z.square() / (1.0 + z), -0.5


def _matern32_derivative(t: Tensor, s: Tensor) -> Tensor:
    return -1.5 * torch.exp(-_root(3.0 * t))


def _matern52(d: Tensor, phi1: Scale) -> Tensor:
    z = _root(5.0 * phi1 * d)
    return (1.0 + z + z.square() / 3.0) * torch.exp(-z)


def _matern52_slope(d: Tensor, phi1: Scale) -> Slope:
    z = _root(5.0 * phi1 * d)
    return z.square() * (1.0 + z) / (3.0 + 3.0 * z + z.square()), -0.5


def _matern52_derivative(t: Tensor, s: Tensor) -> Tensor:
    z = _root(5.0 * t)
    return -5.0 / 6.0 * (1.0 + z) * torch.exp(-z)


def _itself(d: Tensor, phi1: Scale) -> Tensor:
    return d


def _flat(d: Tensor, phi1: Scale) -> Slope:
    return d, 0.0


def _one(t: Tensor, s: Tensor) -> Tensor:
    return torch.ones_like(t)


@dataclass(frozen=True)
class MetricKernel(Kernel):
    """A metric and a profile; φ₁ follows from a length-scale ℓ as factor · ℓ^(−exponent).

    `derivative` is s'(t) of t and s(t); `by_input` says of weights on pairs how much of Σ G t each input makes for φ₁ = 1.
    Distances are computed once for all Θ, nothing is left to autograd, and compiled code serves what it knows of these.
    """

    name: str
    metric: Callable[[Tensor, Tensor], Tensor]
    profile: Callable[[Tensor, Scale], Tensor]
    log_slope: Callable[[Tensor, Scale], Slope] = _flat
    factor: float = 1.0
    exponent: float = 2.0  # of a length in t; 0 for a kernel without length-scale
    derivative: Callable[[Tensor, Tensor], Tensor] = _one
    by_input: Callable[[Tensor, Tensor, Tensor], Tensor] = squared_by_input
    features: Callable[[Tensor], Tensor] | None = None
    further: int = 0

    @property
    def has_length_scale(self) -> bool:
        return self.exponent > 0.0

    @property
    def parameters(self) -> Mapping[str, Positive]:
        return {"phi1": Positive(self.factor, self.exponent, per_input=True)} if self.has_length_scale else {}

    def __call__(
        self, x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"], phi: Phi
    ) -> Float[Tensor, "*batch N N2"]:
        z = self._scaled(x, phi)
        return self.profile(self.metric(z, z if x2 is x else self._scaled(x2, phi)), 1.0)

    def _scaled(self, x: Tensor, phi: Phi) -> Tensor:
        return self.scaled(x, phi["phi1"]) if self.has_length_scale else x

    def scaled(self, x: Tensor, phi1: Tensor) -> Tensor:
        """Inputs in length-scales: t is the metric of these."""
        return x * (phi1 ** (1.0 / self.exponent))[..., None, :] if self.has_length_scale else x

    def length_scales(self, log_phi: Phi) -> list[tuple[str, Tensor]]:
        return [(self.name, positive.length(log_phi[name])) for name, positive in self.parameters.items()]


rbf = MetricKernel("rbf", squared_distance, _exponential, _exponential_slope, derivative=_exponential_derivative)
laplace = MetricKernel(
    "laplace",
    absolute_distance,
    _exponential,
    _exponential_slope,
    factor=2.0,
    exponent=1.0,
    derivative=_exponential_derivative,
    by_input=absolute_by_input,
)
cauchy = MetricKernel("cauchy", squared_distance, _rational, _rational_slope, derivative=_rational_derivative)
matern32 = MetricKernel("matern32", squared_distance, _matern32, _matern32_slope, derivative=_matern32_derivative)
matern52 = MetricKernel("matern52", squared_distance, _matern52, _matern52_slope, derivative=_matern52_derivative)
linear = MetricKernel("linear", cosine, _itself, exponent=0.0, features=unit)
affine = MetricKernel("affine", affine_cosine, _itself, exponent=0.0, features=with_constant, further=1)
