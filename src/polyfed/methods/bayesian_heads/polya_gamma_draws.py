"""Draws of Pólya-Gamma variables, and the Gibbs sampler of a Gaussian process classifier that they make possible.

Polson, Scott, Windle: "Bayesian Inference for Logistic Models Using Pólya-Gamma Latent Variables", Journal of the American
Statistical Association 2013, arXiv:1205.0310.

PG(1, c) is an endless sum of exponential variables E_k; its first terms are drawn and the rest has its mean, exactly:

    ω = (1/2π²) Σ_k E_k / ((k − ½)² + c²/4π²)  =  E[ω] + (1/2π²) Σ_k (E_k − 1) / ((k − ½)² + c²/4π²)

With 200 terms the variance that is left out is 1e-10 at c = 0, of 1/24, and a five-thousandth of the whole at c = 100.

>>> generator = torch.Generator().manual_seed(0)
>>> omega = polya_gamma_from(torch.zeros(50_000, dtype=torch.float64), exponentials((50_000, TERMS), generator))
>>> f"{omega.mean():.2f} {omega.var():.3f}"  # PG(1, 0) has mean 1/4 and variance 1/24
'0.25 0.042'
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from polyfed.gp.likelihoods.logistic import pg_mean
from polyfed.gp.linalg import cholesky, jittered_cholesky

TERMS = 200


def polya_gamma_from(c: Tensor, drawn: Tensor) -> Tensor:
    """ω ~ PG(1, c) made of these exponential variables, (..., terms); it depends on |c| alone."""
    k = torch.arange(drawn.shape[-1], dtype=torch.float64) + 0.5
    rates = k.square() + (c / (2.0 * pi)).square()[..., None]
    return pg_mean(c.abs()) + ((drawn - 1.0) / rates).sum(-1) / (2.0 * pi**2)


def gibbs(
    K: Tensor, y: Tensor, omega: Tensor, *, n_chains: int, n_sweeps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Chains of f | ω ~ N(Σ y/2, Σ), Σ = (K⁻¹ + Ω)⁻¹, and ω | f ~ PG(1, f), side by side; the last ω and f, (chains, n).

    Chains come in pairs that mirror each other: the second gets the normal numbers of the first with the opposite sign, and
    the same exponential ones. Each is a right chain, and their average turns exactly with the signs of all labels.

    Args:
        K: prior covariance, (n, n).
        y: labels −1 and 1.
        omega: from which all chains start, (n,).
        n_chains: an even number.
    """
    n, pairs = y.shape[-1], n_chains // 2
    root, kappa, identity = jittered_cholesky(K), 0.5 * y, torch.eye(n, dtype=torch.float64)
    mirror = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
    omega, f = omega.expand(2, pairs, n), torch.zeros(2, pairs, n, dtype=torch.float64)
    for _ in range(n_sweeps):
        f0, noise = torch.randn(2, pairs, n, dtype=torch.float64, generator=generator)
        f0, noise = mirror * (f0 @ root.mT), mirror * noise
        # f0 is a draw of the prior, corrected by what is observed: κ/ω with variance 1/ω. K⁻¹ is not needed.
        s = omega.sqrt()
        L = cholesky(identity + s[..., :, None] * K * s[..., None, :])
        away = kappa / s - s * f0 - noise
        f = f0 + (s * torch.cholesky_solve(away[..., None], L)[..., 0]) @ K
        omega = polya_gamma_from(f, exponentials((pairs, n, TERMS), generator))
    return omega.flatten(0, 1), f.flatten(0, 1)


def exponentials(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
