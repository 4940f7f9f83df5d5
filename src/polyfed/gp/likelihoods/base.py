"""What a likelihood is: rows, a local bound, a site, a read-out. The inference code knows nothing else of it.

A datum becomes R rows, each a linear combination of the task's outputs. Given that f at those rows has mean m
and variance v, a likelihood answers with its **local bound**

    ℓ(m, v) ≤ E_q[log p(y | f)]            (the best over its auxiliary variables, in closed form)

and the **site** is that bound's derivative, the quadratic that touches it:

    h = −2 ∂ℓ/∂v,      r = ∂ℓ/∂m + h m,      log p(y | f) ~ r f − ½ h f² + const

so h ≥ 0 and r are all that inference needs (equ:mf_local_q2, eq. 3b), and Σ ℓ − KL(q‖p) is the bound it raises. Shapes:
y is (N,) or (N, 2), m and v are (N, R), ℓ is (N,), h and r are (N, R); `noise` is one number, or (N, 1) where the data
of several clients are handled at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class Likelihood(ABC):
    """One kind of observation. Subclasses set the attributes and write the four methods."""

    n_outputs: int = 1
    initial_noise: float | None = None  # σ² or dispersion to start from; None if there is no such parameter
    fixed_site: bool = False  # True if (h, r) depend on neither m nor v: inference then eliminates these rows once
    closed_form_noise: bool = False  # True if `best_noise` answers
    # h of a row is at most this, divided by the noise where there is one, for any y and q; infinity where it grows with y
    most_precise: float = float("inf")
    power: float = 1.0  # tempering: ℓ, h and r are all raised to it, so that the bound stays consistent

    def pattern(self, y: Float[Tensor, "N ..."]) -> Float[Tensor, "N R O"]:
        """The rows of each datum as combinations of the task's outputs, (N, R, n_outputs)."""
        return torch.ones(y.shape[0], 1, 1, dtype=torch.float64)

    @abstractmethod
    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        """ℓ(m, v), (N,). Differentiable in `noise`."""

    @abstractmethod
    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        """(h, r), each (N, R)."""

    @abstractmethod
    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The predictive distribution of y where the outputs have `mean` (N, n_outputs) and `cov` (N, n_outputs, n_outputs)."""

    def best_noise(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"] | None:
        """For each datum a number, (N,), whose mean is the best noise given q(f); None where that has no closed form.

        Sums and counts pool it exactly over clients, which an average of σ² would not.
        """
        return None

    def compiled(self, y: Tensor) -> Form | None:
        """The same site and local bound for compiled inference, with these data; None and torch does it."""
        return None


def required(noise: Tensor | None) -> Tensor:
    """The noise of a likelihood that has one."""
    assert noise is not None, "this likelihood has a noise parameter and the prior gave none"
    return noise
