"""Choosing inducing inputs Z among a client's own inputs (k-means: among their averages); they never leave it.

| name      | what it takes                                      | when                                        |
|-----------|----------------------------------------------------|---------------------------------------------|
| `greedy`  | the input that explains most of what is left      | the default: fewest inputs for a given bound |
| `uniform` | inputs at random                                   | to reproduce the paper                      |
| `kmeans`  | centres of clusters                                | very many inputs in few dimensions          |
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

SUBSET = 20_000  # inputs that k-means looks at
CANDIDATES = (512, 2_000)  # inputs that the greedy choice looks at: four times as many as it takes, within these limits
NOTHING = 1e-10  # a variance so small beside the largest is rounding


def greedy(prior: Prior, rows: Rows, M: int, seed: int) -> Tensor:
    """Pivoted Cholesky: each next input is the one that explains most of what is left, Σ d over all rows.

    Choices are nested in M, as long as it is the same inputs that are looked at: of very many a part, drawn by the seed. Ends
    early when nothing is left to explain, so duplicates are never chosen twice.
    """
    return torch.cat([rows.x[:0], *islice(in_turn(prior, rows, M, seed), M)])


def in_turn(prior: Prior, rows: Rows, most: int, seed: int) -> Iterator[Tensor]:
    """The greedy choice, one input (1, D) after the other, where their number is not known yet: up to `most`."""
    with torch.no_grad():
        used, of_row = rows.at.unique(return_inverse=True)
        # How much the rows at each input lean on each latent.
        weight = rows.x.new_zeros(len(used), prior.n_latents).index_add_(0, of_row, (rows.A @ prior.W).square())
        n_candidates = max(most, min(max(4 * most, CANDIDATES[0]), CANDIDATES[1]))
        if len(used) > n_candidates:
            part = torch.randperm(len(used), generator=torch.Generator().manual_seed(seed))[:n_candidates]
            used, weight = used[part], weight[part]
        x = rows.x[used]
        z = prior.eta(x)
        residual = [prior.latent_covariance(b, z, z) for b in range(prior.n_latents)]  # given what is chosen
        nothing = [NOTHING * max(k.diagonal().tolist(), default=0.0) for k in residual]
    for _ in range(len(x)):
        with torch.no_grad():  # not around a yield: the caller goes on as it was
            score = torch.zeros_like(weight[:, 0])
            for b, k in enumerate(residual):
                left = k.diagonal()
                gain = (weight[:, b] @ k.square()) / left.clamp_min(1e-300)
                score += torch.where(left > nothing[b], gain, 0.0)
            i = int(score.argmax())
            if float(score[i]) <= 0.0:
                return
            for b, k in enumerate(residual):
                if k[i, i] > nothing[b]:
                    column = k[i] / k[i, i].sqrt()
                    k.addr_(column, column, alpha=-1.0)
                k[i] = k[:, i] = 0.0  # whatever rounding says
        yield x[i : i + 1]


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
    for _ in range(20 if len(x) > M else 0):
        nearest_centre = torch.cdist(x, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest_centre, x)
        counts = torch.bincount(nearest_centre, minlength=len(centres))[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return centres.unique(dim=0)


METHODS = {"greedy": greedy, "uniform": uniform, "kmeans": kmeans}


def choose_inducing(prior: Prior, rows: Rows, M: int, *, method: str = "greedy", seed: int = 0) -> Tensor:
    """At most M inducing inputs, fewer where there are fewer distinct ones.

    >>> from polyfed.gp.likelihoods import Gaussian
    >>> x = torch.tensor([[0.0], [0.0], [5.0], [0.1]], dtype=torch.float64)
    >>> rows = Rows.of(x, {"pulse": (torch.arange(4), x[:, 0])}, {"pulse": Gaussian()})
    >>> prior = Prior(kernels=["rbf"], dims=1, outputs={"pulse": 1}, noise={"pulse": 0.1})
    >>> choose_inducing(prior, rows, 3)
    tensor([[0.0000],
            [5.0000],
            [0.1000]], dtype=torch.float64)
    """
    if method not in METHODS:
        raise ConfigError(f"selection {method!r} of inducing inputs is unknown", remedy=nearest(method, METHODS))
    if M < 1:
        raise ConfigError(f"{M} inducing inputs", remedy="use at least one, or None for the exact posterior")
    return METHODS[method](prior, rows, M, seed)
