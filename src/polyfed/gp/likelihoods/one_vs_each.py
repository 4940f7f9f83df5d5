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

from polyfed.gp.likelihoods.logistic import MOST_PRECISE, Logistic
from polyfed.gp.quadrature import expected_probabilities

if TYPE_CHECKING:
    from jaxtyping import Float


class OneVsEach(Logistic):
    """Multi-class by one-vs-each: softmax_y(f) ≥ Π_{c ≠ y} sigmoid(f_y − f_c), a row for each other class: κ = ½, n = 1.
    (multi_class, app. E)
    """

    most_precise = MOST_PRECISE

    def __init__(self, n_classes: int, *, bound: str = "polya-gamma", power: float = 1.0) -> None:
        super().__init__(bound=bound, power=power)
        self.n_outputs = n_classes

    def pattern(self, y: Float[Tensor, "N ..."]) -> Float[Tensor, "N R O"]:
        K = self.n_outputs
        label = y.to(torch.int64)
        # The other classes in order: for each slot, skip the label.
        slot = torch.arange(K - 1)
        other = slot[None, :] + (slot[None, :] >= label[:, None])
        identity = torch.eye(K, dtype=torch.float64)
        return identity[label][:, None, :] - identity[other]  # e_y − e_c

    def terms(self, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor, float]:
        one = torch.ones(len(y), 1, dtype=torch.float64)
        return 0.5 * one, one, 0.0 * one, 0.0

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The softmax averaged over q(f)."""
        # A shift common to all classes does not matter to the softmax: without it one direction less is left.
        K = self.n_outputs
        centre = torch.eye(K, dtype=torch.float64) - 1.0 / K
        proba = expected_probabilities(lambda f: torch.softmax(f, -1), mean @ centre, centre @ cov @ centre)
        return {"proba": proba}
