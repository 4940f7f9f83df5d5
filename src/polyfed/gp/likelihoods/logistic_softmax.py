"""Multi-class by the logistic-softmax: p(y = k | f) = sigmoid(f_k/τ) / Σ_c sigmoid(f_c/τ), a row for each class
(multi_class, app. E).

Galy-Fajou, Wenzel, Donner, Opper: "Multi-Class Gaussian Process Classification Made Conjugate: Efficient Inference via Data
Augmentation", UAI 2019, arXiv:1905.09670.

Three auxiliary variables make it Gaussian in f: 1/Σσ is an integral over λ > 0; e^{−λσ} is a sum over Poisson
counts n_c; σ(f)^y σ(−f)^n is an integral over ω_c ~ PG(y_c + n_c, 0). With φ = f/τ, c_c² = E[φ_c²] and

    ε_c = e^{−E[φ_c]/2} / 2cosh(c_c/2) ≤ 1        (σ(−φ_c), as the Pólya-Gamma bound sees it)

the best q(λ, n, ω) given q(f), with λ and n kept together, has q(λ) = Exp(Σ_c (1 − ε_c)), E[n_c] = γ_c = ε_c / Σ_c (1 − ε_c)
and q(ω_c | n_c) = PG(y_c + n_c, c_c). This is tighter than independent λ and n, which need an inner iteration and leave the
posterior too narrow, and E[ω] follows from γ, so neither can be stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.likelihoods.base import Likelihood
from polyfed.gp.likelihoods.logistic import log_2cosh_half, pg_mean
from polyfed.gp.quadrature import expected_probabilities

# Added to the denominator Σ_c σ(φ_c). Where all classes lie far below zero, only their ratios matter to the likelihood and
# E[n] grows without end, beyond what a factorisation bears; this keeps it finite, and the bound a bound.
LEFT_OVER = 1e-8

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.likelihoods import Form


class LogisticSoftmax(Likelihood):
    """With a zero-mean prior it is under-confident a priori; a smaller `temperature` makes it bolder."""

    def __init__(self, n_classes: int, *, temperature: float = 1.0, power: float = 1.0) -> None:
        self.n_outputs, self.tau, self.power = n_classes, temperature, power

    def pattern(self, y: Float[Tensor, "N ..."]) -> Float[Tensor, "N R O"]:
        return torch.eye(self.n_outputs, dtype=torch.float64).expand(y.shape[0], -1, -1)

    def local_bound(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> Float[Tensor, " N"]:
        phi, c, _, rate = self._auxiliary(m, v)
        own = (self._one_hot(y) * (0.5 * phi - log_2cosh_half(c))).sum(-1)
        return own - rate.log()  # −log Σ_c σ(φ_c), and equal to it where v = 0

    def site(
        self, y: Float[Tensor, "N ..."], m: Float[Tensor, "N R"], v: Float[Tensor, "N R"], noise: Tensor | None
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        _, c, log_epsilon, rate = self._auxiliary(m, v)
        gamma = torch.exp(log_epsilon) / rate[:, None]
        hot = self._one_hot(y)
        h = (hot + gamma) * pg_mean(c) / self.tau**2
        return h, 0.5 * (hot - gamma) / self.tau

    def readout(
        self, mean: Float[Tensor, "N O"], cov: Float[Tensor, "N O O"], noise: Tensor | None
    ) -> dict[str, Tensor]:
        def probabilities(phi: Tensor) -> Tensor:
            return torch.softmax(torch.nn.functional.logsigmoid(phi), -1)

        return {"proba": expected_probabilities(probabilities, mean / self.tau, cov / self.tau**2)}

    def compiled(self, y: Tensor) -> Form:
        from polyfed.gp.compiled import likelihoods as forms

        return forms.Form(forms.softmax_site.address, forms.softmax_bound.address, y, (self.tau, LEFT_OVER))

    def _one_hot(self, y: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(y.to(torch.int64), self.n_outputs).to(torch.float64)

    def _auxiliary(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """E[φ], c and log ε, each (N, K), and the rate Σ_c (1 − ε_c) of q(λ), (N,)."""
        phi, w = m / self.tau, v / self.tau**2
        c = (phi.square() + w).sqrt()
        # c + φ without cancellation: far below zero, 1 − ε is small and all that is known of the class.
        above = torch.where(phi < 0, w / (c - phi).clamp_min(1e-300), c + phi)
        log_epsilon = -0.5 * above - torch.log1p(torch.exp(-c))
        return phi, c, log_epsilon, (-torch.expm1(log_epsilon)).sum(-1) + LEFT_OVER
