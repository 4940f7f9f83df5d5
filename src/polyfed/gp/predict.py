"""The predictive distribution: what all rows of all tasks say of the latent functions at new inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.gp.exact import ExactModel
from polyfed.gp.linalg import Gaussian


@dataclass(frozen=True)
class LatentPrediction:
    """q(g(x)) at each of N inputs: `mean` (N, B) and `cov` (N, B, B) over the B latent functions."""

    mean: Tensor
    cov: Tensor

    def outputs(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (N, T) and covariance (N, T, T) of the outputs W g(x)."""
        return self.mean @ W.mT, W @ self.cov @ W.mT


def predict_latents(model: ExactModel, q: Gaussian, x: Tensor, *, chunk: int = 4096) -> LatentPrediction:
    """q(g(x)) from all rows of all tasks at once (equ:predict).

    The printed formula conditions a task on its own points and on K⁻¹; that loses what the other tasks know. Here
    μ = k*ᵀ α and v = k** − ‖L⁻¹ S k*‖², with k* the covariance to every row of every task.
    """
    with torch.no_grad():
        parts = [_predict_chunk(model, q, part) for part in x.split(chunk)] if len(x) else []
        B = model.prior.n_latents
        empty = LatentPrediction(x.new_zeros(0, B), x.new_zeros(0, B, B))
        parts.append(empty)
        return LatentPrediction(torch.cat([p.mean for p in parts]), torch.cat([p.cov for p in parts]))


def _predict_chunk(model: ExactModel, q: Gaussian, x: Tensor) -> LatentPrediction:
    prior, rows = model.prior, model.rows
    z = prior.eta(x)
    s = q.h.sqrt()
    mean, explained, variance = [], [], []
    for b in range(prior.n_latents):
        k_star = prior.latent_covariance(b, model.z, z)[rows.at] * model.a[:, b, None]  # (N, X): cov(f_rows, g_b(x))
        mean.append(q.alpha @ k_star)
        explained.append(torch.linalg.solve_triangular(q.L, s[:, None] * k_star, upper=False))
        variance.append(prior.latent_variance(b, z))
    V = torch.stack(explained)  # (B, N, X)
    cov = torch.diag_embed(torch.stack(variance, -1)) - torch.einsum("bnx,cnx->xbc", V, V)
    return LatentPrediction(torch.stack(mean, -1), cov)
