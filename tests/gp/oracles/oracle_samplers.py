"""Monte-Carlo references: importance sampling of the evidence, elliptical slice and Pólya-Gamma Gibbs sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from oracle_likelihoods import Array
from oracle_problems import Problem
from scipy.special import logsumexp

from polyfed.gp import ExactModel, Posterior


class ImportanceSampler:
    """Log evidence from draws of a mixture: the posterior under test, what a pilot run found, and the prior.

    The prior's share bounds the weights: none can exceed ten times the largest likelihood. Any proposal gives a right
    estimate, so taking part of it from the posterior under test takes nothing from the independence.
    """

    PILOT = 10_000

    def __init__(
        self, problem: Problem, model: ExactModel, posterior: Posterior, seed: int, *, size: int = 40_000
    ) -> None:
        self.problem, self.rng = problem, np.random.default_rng(seed)
        A, h, r = problem.row_design(model), posterior.q.h.numpy(), posterior.q.r.numpy()
        precision = np.eye(problem.dims) + A.T @ (h[:, None] * A)
        mean = np.linalg.solve(precision, A.T @ r)
        prior = (np.zeros(problem.dims), np.eye(problem.dims))

        u, log_ratio = self._draw([(mean, precision / 5.0), prior], [0.7, 0.3], self.PILOT)
        log_w = log_ratio + problem.log_likelihood(problem.outputs(u))
        w = np.exp(log_w - logsumexp(log_w))
        centre = w @ u
        cov = (u - centre).T @ (w[:, None] * (u - centre))

        mixture = [(centre, np.linalg.inv(1.3 * cov)), (mean, precision / 2.0), prior]
        u, self.log_ratio = self._draw(mixture, [0.7, 0.2, 0.1], size)
        self.f = problem.outputs(u)

    def _draw(self, mixture: list, shares: list[float], size: int) -> tuple[Array, Array]:
        """Whitened coordinates, and the log of prior over mixture there. Components are (mean, precision)."""
        roots = [np.linalg.cholesky(precision) for _, precision in mixture]
        u, log_terms = [], []
        for (centre, _), root, share in zip(mixture, roots, shares, strict=True):
            z = self.rng.normal(size=(len(centre), round(size * share)))
            u.append(centre + np.linalg.solve(root.T, z).T)
        u = np.concatenate(u)
        for (centre, _), root, share in zip(mixture, roots, shares, strict=True):
            quadratic = (((u - centre) @ root) ** 2).sum(-1)
            log_terms.append(np.log(share) + np.log(np.diag(root)).sum() - 0.5 * quadratic)
        return u, -0.5 * (u**2).sum(-1) - logsumexp(log_terms, axis=0)

    def log_evidence(self, **instead) -> tuple[float, float]:
        """The estimate and its standard error; `instead` as in `Problem.log_likelihood`."""
        log_w = self.log_ratio + self.problem.log_likelihood(self.f, **instead)
        estimate = logsumexp(log_w) - np.log(len(log_w))
        return float(estimate), float(np.exp(log_w - estimate).std() / len(log_w) ** 0.5)


@dataclass(frozen=True)
class Moments:
    """Posterior mean and standard deviation of every output at every input, with the error of the mean."""

    mean: Array
    sd: Array
    error: Array

    @classmethod
    def of(cls, total: Array, total_square: Array, sweeps: int) -> Moments:
        """From sums over sweeps, (chains, U, T). Chains are independent, so their std is an honest error."""
        of_chains = total / sweeps
        mean = of_chains.mean(0)
        sd = np.sqrt((total_square / sweeps).mean(0) - mean**2)
        return cls(mean, sd, of_chains.std(0, ddof=1) / len(of_chains) ** 0.5)


def elliptical_slice(problem: Problem, seed: int, *, chains: int = 600, sweeps: int = 250, burn: int = 100) -> Moments:
    """Elliptical slice sampling of p(outputs | labels), all chains side by side."""
    rng = np.random.default_rng(seed)

    def prior() -> Array:
        return problem.outputs(rng.normal(size=(chains, problem.dims)))

    f = prior()
    log_l = problem.log_likelihood(f)
    total, total_square = np.zeros_like(f), np.zeros_like(f)
    for sweep in range(burn + sweeps):
        nu = prior()
        level = log_l + np.log(rng.random(chains))
        theta = rng.uniform(0.0, 2.0 * np.pi, chains)
        low, high = theta - 2.0 * np.pi, theta.copy()
        active = np.arange(chains)
        start = f.copy()
        while len(active):
            angle = theta[active, None, None]
            candidate = start[active] * np.cos(angle) + nu[active] * np.sin(angle)
            value = problem.log_likelihood(candidate)
            good = value > level[active]
            done = active[good]
            f[done], log_l[done] = candidate[good], value[good]
            active = active[~good]
            below = theta[active] < 0.0
            low[active] = np.where(below, theta[active], low[active])
            high[active] = np.where(below, high[active], theta[active])
            theta[active] = rng.uniform(low[active], high[active])
        if sweep >= burn:
            total += f
            total_square += f**2
    return Moments.of(total, total_square, sweeps)


def polya_gamma_gibbs(problem: Problem, seed: int, *, chains: int = 200, sweeps: int = 500, burn: int = 50) -> Moments:
    """Gibbs sampling between ω | f ~ PG(1, f) and f | ω, for binary and regression tasks."""
    polyagamma = pytest.importorskip("polyagamma")  # no wheels for Python 3.14 yet
    rng = np.random.default_rng(seed)
    A, r, fixed = [], [], []
    for output, task in enumerate(problem.tasks.values()):
        A.append(problem.design[task.at, output])
        binary = task.kind == "bernoulli"
        r.append(0.5 * task.y if binary else task.y / task.noise)
        fixed.append(np.full(len(task.y), np.nan if binary else 1.0 / task.noise))
    A, r, fixed = np.concatenate(A), np.concatenate(r), np.concatenate(fixed)
    binary = np.isnan(fixed)
    h = np.tile(fixed, (chains, 1))

    u = rng.normal(size=(chains, problem.dims))
    total = np.zeros((chains, *problem.design.shape[:2]))
    total_square = np.zeros_like(total)
    for sweep in range(burn + sweeps):
        h[:, binary] = polyagamma.random_polyagamma(1.0, u @ A[binary].T, random_state=rng)
        precision = np.eye(problem.dims) + np.einsum("nu,cn,nv->cuv", A, h, A, optimize=True)
        root = np.linalg.cholesky(precision)
        half = np.linalg.solve(root, np.broadcast_to(A.T @ r, u.shape)[..., None])
        noise = rng.normal(size=half.shape)
        u = np.linalg.solve(np.swapaxes(root, -1, -2), half + noise)[..., 0]
        if sweep >= burn:
            f = problem.outputs(u)
            total += f
            total_square += f**2
    return Moments.of(total, total_square, sweeps)
