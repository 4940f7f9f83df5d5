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
from torch.autograd.function import once_differentiable

from polyfed.gp.kernels.base import Kernel, Phi, Positive

if TYPE_CHECKING:
    from jaxtyping import Float

# ---- distances and cosines of all pairs of inputs: t for φ₁ = 1, and how much of Σ G t each input makes ---------------------


def squared_distance(
    x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch N N2"]:
    """‖x − x'‖² for all pairs: by one matrix product, and by differences where that cancels.

    Without the second part, repeated inputs a thousand length-scales from the centre would not be the same input.
    """
    return _SquaredDistance.apply(x, None if x2 is x else x2)  # pyright: ignore[reportReturnType]


class _SquaredDistance(torch.autograd.Function):
    """x2 is None for the distances of x to itself, of which those on the diagonal are zero and need no second look."""

    @staticmethod
    def forward(ctx, x: Tensor, x2: Tensor | None) -> Tensor:
        centre = x.mean(-2, keepdim=True) if x.shape[-2] else x.new_zeros(1)
        a = x - centre
        b = a if x2 is None else x2 - centre
        ctx.save_for_backward(a, *(() if x2 is None else (b,)))
        norms = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
        d2 = torch.sub(norms, a @ b.mT, alpha=2.0)
        near = d2 <= 1e-4 * norms
        if x2 is None:
            d2.diagonal(dim1=-2, dim2=-1).zero_()
            near.diagonal(dim1=-2, dim2=-1).zero_()
        if not bool(near.any()):
            return d2
        close = torch.nonzero(near, as_tuple=True)
        if 4 * len(close[0]) > d2.numel():  # most pairs: all of them at once need less memory
            return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
        i, j = close[-2], close[-1]
        exact = (_take(a, close[:-2], i) - _take(b, close[:-2], j)).square().sum(-1)
        return d2.index_put_(close, exact)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        # ∂/∂x_i Σ_ij G_ij ‖x_i − x'_j‖² = 2 Σ_j G_ij (x_i − x'_j); the centre cancels
        (G,) = grad_outputs
        a, *other = ctx.saved_tensors
        if not other:
            G = G + G.mT
            return 2.0 * (G.sum(-1, keepdim=True) * a - G @ a), None
        (b,) = other
        return 2.0 * (G.sum(-1, keepdim=True) * a - G @ b), 2.0 * (G.sum(-2)[..., None] * b - G.mT @ a)


def _take(x: Tensor, batch: tuple[Tensor, ...], i: Tensor) -> Tensor:
    return x[(*batch, i)] if x.dim() > 2 else x[i]


def squared_by_input(
    G: Float[Tensor, "*batch N N2"], x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch D"]:
    """Σ_ij G_ij (x_id − x'_jd)² for each input d: by products, from a centre at which little cancels."""
    centre = x2.mean(-2, keepdim=True) if x2.shape[-2] else 0.0
    a, b = x - centre, x2 - centre
    apart = (G.sum(-1)[..., None, :] @ a.square() + G.sum(-2)[..., None, :] @ b.square())[..., 0, :]
    return apart - 2.0 * (a * (G @ b)).sum(-2)


def absolute_distance(
    x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch N N2"]:
    return torch.cdist(x, x2, p=1.0)


def absolute_by_input(
    G: Float[Tensor, "*batch N N2"], x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]
) -> Float[Tensor, "*batch D"]:
    """Σ_ij G_ij |x_id − x'_jd| for each input d."""
    pairs = zip(x.unbind(-1), x2.unbind(-1), strict=True)
    return torch.stack([(G * (a[..., :, None] - b[..., None, :]).abs()).sum((-2, -1)) for a, b in pairs], -1)


def unit(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)  # the zero vector stays zero


def cosine(x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]) -> Float[Tensor, "*batch N N2"]:
    return unit(x) @ unit(x2).mT


def with_constant(x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D1"]:
    """x and a constant as large as x usually is, at length one: a plane and its offset, flat where x is far out."""
    constant = x.new_full((*x.shape[:-1], 1), x.shape[-1] ** 0.5)
    return unit(torch.cat([x, constant], -1))


def affine_cosine(x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"]) -> Float[Tensor, "*batch N N2"]:
    return with_constant(x) @ with_constant(x2).mT


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
