"""The predictive distribution of many clients at once: what `ExactModel.predict` says of each, by one set of calls for all."""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp.exact import ExactModel
from polyfed.gp.knowledge import Informed
from polyfed.gp.linalg import Gaussian


def predict_batch(model: ExactModel, q: Gaussian, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (C, X, B) and covariance (C, X, B, B) of the latents at each client's inputs x, (C, X, D).

    For priors whose kernels see the inputs, and without a mean of the outputs.
    """
    with torch.no_grad():
        prior, at, s = model.prior, model.rows.at[..., None], q.h.sqrt()[..., None]
        covariances = []
        for b in range(prior.n_latents):
            k = torch.take_along_dim(prior.latent_covariance(b, model.distances.z, x), at, -2)
            covariances.append(model.a[..., b, None] * k)  # cov(f, g_b(x)), (C, N, X)
        variance = torch.stack([prior.latent_variance(b, x) for b in range(prior.n_latents)], -1)
        mean, cov = x.new_zeros(variance.shape), torch.diag_embed(variance)
        if model.informed is not None:
            sent, known, with_rows = _known(model.informed, x)
            mean[..., : sent.shape[-1]] = sent
            cov[..., : sent.shape[-1], : sent.shape[-1]] -= known
            for b, part in enumerate(with_rows):
                covariances[b] = covariances[b] - part
        mean += torch.stack([(q.alpha[..., None, :] @ k)[..., 0, :] for k in covariances], -1)
        V = torch.linalg.solve_triangular(q.L, s * torch.cat(covariances, -1), upper=False)
        V = V.unflatten(-1, (prior.n_latents, x.shape[-2])).permute(0, 3, 2, 1)  # (C, X, B, N)
        return mean, cov - V @ V.mT


def _known(informed: Informed, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """As `Informed.at`: the mean (C, X, shared) of the shared latents, what is known of their covariance, and of that with the
    rows, (C, N, X) for each."""
    knowledge, prior = informed.knowledge, informed.prior
    parts = knowledge.features(prior, x)
    phi = [prior.amplitude(b).sqrt()[..., None, None] * part for b, part in enumerate(parts)]
    widths = [part.shape[-1] for part in phi]
    means = knowledge.mean.split(widths, -1)
    sent = torch.stack([(part @ mu[..., None])[..., 0] for part, mu in zip(phi, means, strict=True)], -1)
    less = torch.eye(sum(widths), dtype=x.dtype) - torch.cholesky_inverse(knowledge.L)  # I − Ω⁻¹
    known = x.new_zeros(*sent.shape, len(phi))
    for b, rows in enumerate(less.split(widths, -2)):
        spread = (phi[b] @ rows).split(widths, -1)
        for c, part in enumerate(phi):
            known[..., b, c] = (spread[c] * part).sum(-1)
    with_rows = [mine @ part.mT for mine, part in zip(informed.known.split(widths, -1), phi, strict=True)]
    return sent, known, with_rows
