"""Multi-class by one-vs-each: softmax_y(f) ≥ Π_{c ≠ y} sigmoid(f_y − f_c), a row for each other class.  (multi_class, app. E)

Titsias: "One-vs-Each Approximation to Softmax for Scalable Estimation of Probabilities", NeurIPS 2016, arXiv:1609.07410;
with Pólya-Gamma variables, Snell, Zemel: "Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma Augmented Gaussian
Processes", ICLR 2021, arXiv:2007.10417.

Each datum is counted K − 1 times, which makes the posterior of class differences too narrow for K > 2. A power of
2/K gives the bound the curvature of the softmax at f = 0; it is then no longer a bound of the softmax evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.logistic import MOST_PRECISE, bound_named, logistic_bound, logistic_form, logistic_site
from polyfed.gp.quadrature import expected_probabilities

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class OneVsEach(Likelihood):
    """κ = ½, n = 1 on every row; the read-out is the softmax averaged over q(f)."""

    most_precise = MOST_PRECISE

    def __init__(self, n_classes: int, *, bound: str = "polya-gamma", power: float = 1.0) -> None:
        self.n_outputs = n_classes
        self.local, self.power = bound_named(bound), power

    def pattern(self, y: Float[Tensor, "N ..."]) -> Float[Tensor, "N R O"]:
        K = self.n_outputs
        label = y.to(torch.int64)
        # The other classes in order: for each slot, skip the label.
        slot = torch.arange(K - 1)
        other = slot[None, :] + (slot[None, :] >= label[:, None])
        identity = torch.eye(K, dtype=torch.float64)
        return identity[label][:, None, :] - identity[other]  # e_y − e_c

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        return logistic_bound(self.local, torch.full_like(m, 0.5), torch.ones_like(m), m, v).sum(-1)

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        return logistic_site(self.local, torch.full_like(m, 0.5), torch.ones_like(m), m, v)

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        # A shift common to all classes does not matter to the softmax: without it one direction less is left.
        K = self.n_outputs
        centre = torch.eye(K, dtype=torch.float64) - 1.0 / K
        proba = expected_probabilities(lambda f: torch.softmax(f, -1), mean @ centre, centre @ cov @ centre)
        return {"proba": proba}

    def compiled(self, y: Tensor) -> Form:
        one = torch.ones(len(y), 1, dtype=torch.float64)
        return logistic_form(self.local, 0.5 * one, one, 0.0 * one)
