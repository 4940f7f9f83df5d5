"""A Gaussian process with one output and one likelihood, on features of a network: the unit of which pFedGP is made.

Sites (precisions h and linear terms r, as in `gp.linalg`) are found first and are constants to autograd, except in the noise;
gradients then flow through the covariances of the prediction or of the bound.

>>> from polyfed.gp import likelihood_for
>>> z = torch.eye(2, dtype=torch.float64)
>>> K = kernel(z, z, amplitude=8.0, length=1.0)
>>> node = NodeGP(K[:1, :1], likelihood_for("regression"), torch.ones(1, dtype=torch.float64), torch.tensor(0.1).double())
>>> mean, variance = node.predict(node.sites_found(), K[:1], 8.0)  # at z₀ itself: 8/8.1 and 8 − 64/8.1
>>> mean[0].item(), variance[0].item()
(0.9876543, 0.0987654)
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp import infer
from polyfed.gp.kernels import squared_distance
from polyfed.gp.likelihoods import Likelihood
from polyfed.gp.linalg import Gaussian, cholesky, log_z, solve
from polyfed.gp.quadrature import gauss_hermite

TRACE = 1e-16  # of variance: rows that fill up have none, and √(f²) must have a derivative
LEAST_VARIANCE = 1e-10  # of a prediction, whose square root must have a derivative
Sites = tuple[Tensor, Tensor]  # h and r, (n,), or (chains, n) or (nodes, n)


def unit_features(features: Tensor) -> Tensor:
    """Features of length one; those that are all zero stay where they are."""
    return torch.nn.functional.normalize(features, dim=-1, eps=1e-8)


def kernel(z: Tensor, z2: Tensor, amplitude: Tensor | float, length: Tensor | float) -> Tensor:
    """k(z, z') = s exp(−‖z − z'‖² / 2ℓ²)."""
    return amplitude * torch.exp(-0.5 * squared_distance(z, z2) / length**2)


class NodeGP:
    """Labels y of n rows with prior covariance K; it is the model and the rows that `gp.infer` asks for.

    With a leading dimension of K, y, noise and weights these are as many nodes; rows that fill one up have K and weight zero.
    """

    prior: None = None

    def __init__(
        self, K: Tensor, likelihood: Likelihood, y: Tensor, noise: Tensor | None = None, weights: Tensor | None = None
    ) -> None:
        self.K, self.likelihood, self.y = K, likelihood, y
        self.data = y.flatten(0, K.dim() - 2)
        self.noise = noise if noise is None else noise[..., None].expand(K.shape[:-1]).reshape(-1, 1)
        self.times = likelihood.power if weights is None else likelihood.power * weights

    @property
    def rows(self) -> NodeGP:
        return self

    def __len__(self) -> int:
        return self.K.shape[-1]

    def sites(self, prior: object, m: Tensor, v: Tensor) -> Sites:
        h, r = self.likelihood.site(self.data, m.reshape(-1, 1), v.clamp_min(TRACE).reshape(-1, 1), self.noise)
        return self.times * h.reshape(m.shape), self.times * r.reshape(m.shape)

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        v = self.K.detach().diagonal(dim1=-2, dim2=-1).clone()
        return torch.zeros_like(v), v

    def step(self, h: Tensor, r: Tensor) -> Gaussian:
        return solve(self.K.detach(), r.detach(), h.detach())

    solve = step

    def complete(self, q: Gaussian) -> Gaussian:
        return q

    def bound(self, q: Gaussian) -> Tensor:
        """A lower bound of log p(y), and log p(y) itself for regression; its gradient is that of `ExactModel.bound`."""
        v = q.v.clamp_min(TRACE).reshape(-1, 1)
        local = self.likelihood.local_bound(self.data, q.m.reshape(-1, 1), v, self.noise)
        value = q.minus_kl + (self.times * local.reshape(q.m.shape)).sum(-1)
        if torch.is_grad_enabled():
            logz = log_z(self.K, q.r, q.h, q)
            value = value + (logz - logz.detach())
        return value

    def posterior(self, tolerance: float = 1e-6, max_steps: int = 200) -> Gaussian:
        """The mean-field posterior of f at the rows."""
        with torch.no_grad():
            return infer(self, tolerance=tolerance, max_steps=max_steps).q  # pyright: ignore[reportArgumentType]

    def sites_found(self, tolerance: float = 1e-6, max_steps: int = 200) -> Sites:
        """The sites at the fixed point, as functions of the noise."""
        q = self.posterior(tolerance, max_steps)
        return self.sites(None, q.m, q.v)

    def predict(self, sites: Sites, k_star: Tensor, amplitude: Tensor | float) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at N new inputs, (..., N), with `k_star` (..., n, N) the covariance of rows and new inputs."""
        h, r = sites
        s = torch.where(h > 0, h, 1.0).sqrt()  # h is zero for rows that fill up alone, whose covariance is
        L = cholesky(torch.eye(len(self), dtype=torch.float64) + s[..., :, None] * self.K * s[..., None, :])
        alpha = s * torch.cholesky_solve((r / s)[..., None], L)[..., 0]
        explained = torch.linalg.solve_triangular(L, s[..., :, None] * k_star, upper=False).square().sum(-2)
        return (alpha[..., None, :] @ k_star)[..., 0, :], (amplitude - explained).clamp_min(LEAST_VARIANCE)


def log_predictive(likelihood: Likelihood, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None) -> Tensor:
    """log ∫ p(y | f) N(f | mean, variance) df of each row; differentiable in the moments and in the noise.

    Gauss-Hermite where the integrand has its mass, which is where N times the likelihood's own site has: a precise label
    of an uncertain latent would fall between nodes that follow N alone.
    """
    z, w = gauss_hermite(32)
    with torch.no_grad():
        m, v = mean, variance
        for _ in range(5):
            h, r = (site[:, 0] for site in likelihood.site(y, m[:, None], v[:, None], noise))
            v = 1.0 / (1.0 / variance + h)
            m = v * (mean / variance + r)
        f = m[:, None] + v.sqrt()[:, None] * z
        log_proposal = -0.5 * (z.square() + v.log()[:, None])
    away = (f - mean[:, None]).square() / variance[:, None]
    log_prior = -0.5 * (away + variance.log()[:, None])
    n, S = f.shape
    noise = noise if noise is None else noise.expand(n, 1).repeat_interleave(S, 0)
    # With no variance the local bound is the log likelihood; a trace of it keeps √(f²) differentiable at zero.
    tiny = torch.full((n * S, 1), 1e-16, dtype=torch.float64)
    log_p = likelihood.local_bound(y.repeat_interleave(S, 0), f.reshape(-1, 1), tiny, noise).reshape(n, S)
    return torch.logsumexp(w.log() + log_p + log_prior - log_proposal, -1)
