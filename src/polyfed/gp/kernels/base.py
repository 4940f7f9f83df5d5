"""What a kernel is: a correlation function s(x, x') with s(x, x) = 1, which can be added and multiplied.

The covariance of latent b is k_b = φ₀ s: the amplitude φ₀ belongs to the prior (gp/prior.py), so that statements about the
variance of a latent (its share in a task, what evidence of it a client may send) hold for any kernel. A kernel names its
other parameters, all positive and learned as logarithms, and gives the matrix; torch differentiates it.

>>> from polyfed.gp.kernels import matern52, periodic, rbf
>>> str(rbf + periodic * matern52), list((rbf + periodic).parameters)
('rbf + periodic * matern52', ['ratio', '0.phi1', '1.phi1', '1.period'])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

Phi = Mapping[str, Tensor]  # the positive parameters of a kernel by name, each (..., numbers)


@dataclass(frozen=True)
class Positive:
    """A positive parameter φ = factor · ℓ^(−exponent) of a length ℓ between inputs; exponent 0 for one that is no length.

    `per_input`: one number, or one for each input where the prior has it so; `width` numbers otherwise.
    """

    factor: float = 1.0
    exponent: float = 0.0
    per_input: bool = False
    width: int = 1

    def size(self, n_scales: int) -> int:
        return n_scales if self.per_input else self.width

    def log_at(self, length: Tensor) -> Tensor:
        """log φ for this length, or one for each input."""
        if self.per_input:
            return log(self.factor) - self.exponent * length.log()
        return (log(self.factor) - self.exponent * length.log().mean(-1, keepdim=True)).expand(self.width).clone()

    def length(self, log_phi: Tensor) -> Tensor:
        return ((log(self.factor) - log_phi) / self.exponent).exp()


class Kernel(ABC):
    """A correlation function of inputs (..., N, D).

    A subclass has a `name`, its `parameters`, and `__call__`; it may be a frozen dataclass whose `options` are numbers that an
    expression can give, as in `periodic(period=2.0)`. `check_kernel` says whether it keeps to what inference relies on.
    """

    name: str
    options: tuple[str, ...] = ()
    # A map to as many numbers as there are inputs and `further` ones, whose products are the kernel; None if there is none.
    features: Callable[[Tensor], Tensor] | None = None
    further: int = 0
    parts: tuple[Kernel, ...] = ()  # of a sum or product

    @property
    def parameters(self) -> Mapping[str, Positive]:
        """The parameters that are learned, by name."""
        return {}

    @abstractmethod
    def __call__(
        self, x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"], phi: Phi
    ) -> Float[Tensor, "*batch N N2"]:
        """s for all pairs of inputs (..., N, D) and (..., N2, D)."""

    def diagonal(self, x: Float[Tensor, "*#batch N D"], phi: Phi) -> Float[Tensor, "*batch N"]:
        """s at x = x' for each input, without the matrix: every input is a batch of its own."""
        alone = x[..., :, None, :]
        return self(alone, alone, {name: value[..., None, :] for name, value in phi.items()})[..., 0, 0]

    def n_features(self, dims: int, n_points: int) -> int:
        """The number of features for inputs of `dims`; a kernel without features of its own has one for each of some points."""
        return n_points if self.features is None else dims + self.further

    def start(self, length: Tensor) -> dict[str, Tensor]:
        """Logarithms of the parameters where inputs are typically so far apart, (1,) or (D,)."""
        return {name: positive.log_at(length) for name, positive in self.parameters.items()}

    def length_scales(self, log_phi: Phi) -> list[tuple[str, Tensor]]:
        """(kernel, length-scales) of each part that has some, given the logarithms of its parameters."""
        return []

    def __str__(self) -> str:
        given = [f"{o}={getattr(self, o)!r}" for o in self.options if getattr(self, o) is not None]
        return f"{self.name}({', '.join(given)})" if given else self.name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def __add__(self, other: Kernel) -> Kernel:
        return Sum((*_parts(self, Sum), *_parts(other, Sum))) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        return (
            Product((*_parts(self, Product), *_parts(other, Product))) if isinstance(other, Kernel) else NotImplemented
        )


class _Composite(Kernel):
    """Kernels of the same inputs; the parameters of part i are named `i.<name>`."""

    def __init__(self, parts: tuple[Kernel, ...]) -> None:
        self.parts = parts

    @property
    def parameters(self) -> Mapping[str, Positive]:
        return {f"{i}.{name}": p for i, part in enumerate(self.parts) for name, p in part.parameters.items()}

    def _each(self, phi: Phi) -> list[tuple[Kernel, Phi]]:
        """The parts, each with its parameters."""
        return [(part, {name: phi[f"{i}.{name}"] for name in part.parameters}) for i, part in enumerate(self.parts)]

    def start(self, length: Tensor) -> dict[str, Tensor]:
        own = {name: p.log_at(length) for name, p in self.parameters.items() if "." not in name}
        return own | {f"{i}.{name}": v for i, part in enumerate(self.parts) for name, v in part.start(length).items()}

    def length_scales(self, log_phi: Phi) -> list[tuple[str, Tensor]]:
        return [one for part, own in self._each(log_phi) for one in part.length_scales(own)]


class Sum(_Composite):
    """Σ_i w_i s_i with weights that add up to one: w_i is in proportion to 1, ratio_1, ratio_2, ..."""

    @property
    def parameters(self) -> Mapping[str, Positive]:
        return {"ratio": Positive(width=len(self.parts) - 1), **super().parameters}

    def __call__(
        self, x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"], phi: Phi
    ) -> Float[Tensor, "*batch N N2"]:
        weights = torch.cat([torch.ones_like(phi["ratio"][..., :1]), phi["ratio"]], -1)
        weights = weights / weights.sum(-1, keepdim=True)
        terms = (weights[..., i, None, None] * part(x, x2, own) for i, (part, own) in enumerate(self._each(phi)))
        return sum(terms, start=x.new_zeros(()))

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts)


class Product(_Composite):
    """Π_i s_i."""

    def __call__(
        self, x: Float[Tensor, "*#batch N D"], x2: Float[Tensor, "*#batch N2 D"], phi: Phi
    ) -> Float[Tensor, "*batch N N2"]:
        return prod((part(x, x2, own) for part, own in self._each(phi)), start=x.new_ones(()))

    def __str__(self) -> str:
        return " * ".join(f"({part})" if isinstance(part, Sum) else str(part) for part in self.parts)


def _parts(kernel: Kernel, of: type[_Composite]) -> tuple[Kernel, ...]:
    """The terms of a sum, or the factors of a product: (a + b) + c is a + b + c."""
    return kernel.parts if isinstance(kernel, of) else (kernel,)
