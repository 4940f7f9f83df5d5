"""Choosing inducing inputs Z among a client's own inputs; they never leave it."""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

SUBSET = 20_000  # inputs that k-means looks at


def greedy(prior: Prior, rows: Rows, M: int, seed: int) -> Tensor:
    """Pivoted Cholesky: each next input is the one of which the chosen ones say least. Choices are nested in M.

    Ends early when nothing is left to say, so duplicates are never chosen twice.
    """
    with torch.no_grad():
        x, B = rows.x[rows.at.unique()], prior.n_latents
        z = prior.eta(x)
        weight = (rows.A @ prior.W).square().mean(0)  # how much the rows lean on each latent
        left = torch.stack([prior.latent_variance(b, z) for b in range(B)])  # (B, U), the variance not yet explained
        factors = [x.new_zeros(min(M, len(x)), len(x)) for _ in range(B)]
        chosen: list[int] = []
        enough = 1e-10 * float((weight @ left).amax()) if len(x) else 0.0
        while len(chosen) < min(M, len(x)):
            score = weight @ left
            i = int(score.argmax())
            if float(score[i]) <= enough:
                break
            for b in range(B):
                known = factors[b][: len(chosen)]
                column = prior.latent_covariance(b, z[i : i + 1], z)[0] - known[:, i] @ known
                root = left[b, i].clamp_min(1e-14).sqrt()
                factors[b][len(chosen)] = column / root if float(left[b, i]) > 1e-12 else 0.0
                left[b] = (left[b] - factors[b][len(chosen)].square()).clamp_min(0.0)
            chosen.append(i)
        return x[chosen]


def uniform(prior: Prior, rows: Rows, M: int, seed: int) -> Tensor:
    """Distinct inputs at random, as in the paper."""
    x = rows.x[rows.at.unique()].unique(dim=0)
    pick = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:M]
    return x[pick]


def kmeans(prior: Prior, rows: Rows, M: int, seed: int) -> Tensor:
    """Centres of k-means, started from inputs at random."""
    generator = torch.Generator().manual_seed(seed)
    x = rows.x[rows.at.unique()].unique(dim=0)
    x = x[torch.randperm(len(x), generator=generator)[:SUBSET]]
    centres = x[:M].clone()
    for _ in range(20):
        nearest_centre = torch.cdist(x, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest_centre, x)
        counts = torch.bincount(nearest_centre, minlength=len(centres))[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return centres.unique(dim=0)


METHODS = {"greedy": greedy, "uniform": uniform, "kmeans": kmeans}


def choose_inducing(prior: Prior, rows: Rows, M: int, *, method: str = "greedy", seed: int = 0) -> Tensor:
    """At most M inducing inputs, fewer where there are not so many distinct ones."""
    if method not in METHODS:
        raise ConfigError(f"selection {method!r} of inducing inputs is unknown", remedy=nearest(method, METHODS))
    if M < 1:
        raise ConfigError(f"{M} inducing inputs", remedy="use at least one, or None for the exact posterior")
    return METHODS[method](prior, rows, M, seed)
