"""The periodic kernel of MacKay, "Introduction to Gaussian Processes", NATO ASI Series F 168, Springer, 1998:

    s(x, x') = exp(−2 Σ_d φ₁_d sin²(π (x_d − x'_d) / p_d))

an RBF kernel of points on circles, (cos 2πx/p, sin 2πx/p), whose squared distances are 4 sin²(π(x − x')/p). With one period
and one φ₁ for all inputs it is the one of scikit-learn (`ExpSineSquared`, φ₁ = 1/ℓ²) where there is one input; for more than
one that one takes the sine of the Euclidean distance, which is not positive definite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, pi
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.errors import ConfigError
from polyfed.gp.kernels.base import Kernel, Phi, Positive
from polyfed.gp.kernels.distances import squared_distance

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class Periodic(Kernel):
    """`period` is where the period starts from, in units of the inputs as kernels see them (scaled ones, as a rule); None for a
    typical distance. It is learned, and a start far from the truth seldom finds it."""

    period: float | None = None
    name = "periodic"
    options = ("period",)

    def __post_init__(self) -> None:
        if self.period is not None and not (isfinite(self.period) and self.period > 0.0):
            raise ConfigError(f"the period of a kernel is {self.period!r}", remedy="give a number above 0")

    @property
    def parameters(self) -> Mapping[str, Positive]:
        factor, exponent = (1.0, -1.0) if self.period is None else (self.period, 0.0)
        return {"phi1": Positive(per_input=True), "period": Positive(factor, exponent, per_input=True)}

    def __call__(
        self, x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"], phi: Phi
    ) -> Float[Tensor, "*batch N N2"]:
        z = _on_circles(x, phi)
        return torch.exp(-0.5 * squared_distance(z, z if x2 is x else _on_circles(x2, phi)))


def _on_circles(x: Tensor, phi: Phi) -> Tensor:
    angle = x * (2.0 * pi / phi["period"])[..., None, :]
    phi1 = phi["phi1"].expand(*phi["phi1"].shape[:-1], x.shape[-1])
    return torch.cat([angle.cos(), angle.sin()], -1) * torch.cat([phi1, phi1], -1).sqrt()[..., None, :]


periodic = Periodic()
