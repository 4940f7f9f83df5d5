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

The Gibbs sampler of a classifier needs Pólya-Gamma variables: Polson, Scott, Windle: "Bayesian Inference for Logistic Models
Using Pólya-Gamma Latent Variables", Journal of the American Statistical Association 2013, arXiv:1205.0310. PG(1, c) is an
endless sum of exponential variables E_k; its first terms are drawn and the rest has its mean, exactly:

    ω = (1/2π²) Σ_k E_k / ((k − ½)² + c²/4π²)  =  E[ω] + (1/2π²) Σ_k (E_k − 1) / ((k − ½)² + c²/4π²)

With 200 terms the variance that is left out is 1e-10 at c = 0, of 1/24, and a five-thousandth of the whole at c = 100.

A binary tree over classes makes binary tasks of one with several: at each branch some go left and the others right, until every
class is alone. The tree is grown from the top by 2-means of the mean features of the classes, so that classes that look alike
part late. The probability of a class is the product of those of the turns on the way to it.

>>> means = torch.tensor([[0.0], [1.0], [10.0]], dtype=torch.float64)
>>> tree = ClassTree.grow(means, classes=(0, 1, 2))
>>> tree.branches
(Branch(left=(0, 1), right=(2,)), Branch(left=(0,), right=(1,)))
>>> turns = [torch.tensor([[left, 1 - left]], dtype=torch.float64) for left in (0.6, 0.3)]
>>> tree.leaf_probabilities(turns)  # 0.6 · 0.3, 0.6 · 0.7 and 0.4
tensor([[0.1800, 0.4200, 0.4000]], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from polyfed.gp import infer
from polyfed.gp.kernels import squared_distance
from polyfed.gp.likelihoods import Likelihood
from polyfed.gp.likelihoods.logistic import pg_mean
from polyfed.gp.linalg import Gaussian, cholesky, jittered_cholesky, log_z, solve
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


MOST_STEPS = 100  # of 2-means; a handful of classes needs two or three


@dataclass(frozen=True)
class Branch:
    """The classes on both sides; the smallest of them is on the left."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    def side(self, labels: Tensor) -> Tensor:
        """1 for labels that go left, −1 for those that go right, 0 for those that never come here."""
        goes = [torch.isin(labels, torch.tensor(classes)) for classes in (self.left, self.right)]
        return goes[0].to(torch.float64) - goes[1].to(torch.float64)


@dataclass(frozen=True)
class ClassTree:
    """Classes in increasing order, and the branches from the top down."""

    classes: tuple[int, ...]
    branches: tuple[Branch, ...]

    @classmethod
    def of(cls, z: Tensor, labels: Tensor) -> ClassTree:
        """The tree over the classes that `labels` has, with features z (rows, features)."""
        classes = tuple(int(c) for c in labels.unique())
        means = [z[labels == c].mean(0) for c in classes]
        return cls.grow(torch.stack(means) if means else z[:0], classes)

    @classmethod
    def grow(cls, means: Tensor, classes: Sequence[int]) -> ClassTree:
        """From the mean features of classes in increasing order."""
        return cls(tuple(classes), tuple(_branches(means.detach(), tuple(classes))))

    def leaf_probabilities(self, turns: Sequence[Tensor]) -> Tensor:
        """(rows, classes) from the probabilities of left and right at each branch, (rows, 2), given that one comes there."""
        rows = len(turns[0]) if turns else 1
        leaves = {c: torch.ones(rows, dtype=torch.float64) for c in self.classes}
        for branch, turn in zip(self.branches, turns, strict=True):
            for side, classes in enumerate((branch.left, branch.right)):
                for c in classes:
                    leaves[c] = leaves[c] * turn[:, side]
        return torch.stack(list(leaves.values()), -1) if leaves else torch.zeros(rows, 0, dtype=torch.float64)


def _branches(means: Tensor, classes: tuple[int, ...]) -> Iterator[Branch]:
    if len(classes) < 2:
        return
    left = _two_means(means)
    sides = [tuple(c for c, here in zip(classes, left.tolist(), strict=True) if here is side) for side in (True, False)]
    yield Branch(*sides)
    yield from _branches(means[left], sides[0])
    yield from _branches(means[~left], sides[1])


def _two_means(points: Tensor) -> Tensor:
    """Which points share a cluster with the first; Lloyd's algorithm from the two points that are furthest apart."""
    apart = torch.cdist(points, points)
    i, j = divmod(int(apart.argmax()), len(points))
    centres = points[[i, j]]
    near = torch.zeros(len(points), dtype=torch.bool)
    for _ in range(MOST_STEPS):
        distance = torch.cdist(points, centres)
        now = distance[:, 0] <= distance[:, 1]
        if bool(now.all()):  # all in one place: nothing separates them, so any halves will do
            return torch.arange(len(points)) < (len(points) + 1) // 2
        if bool((now == near).all()):
            break
        near = now
        centres = torch.stack([points[near].mean(0), points[~near].mean(0)])
    return near if bool(near[0]) else ~near
