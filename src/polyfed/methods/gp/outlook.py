"""What a round will cost a client: operations by counting, so that nobody waits for hours unwarned."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.methods.base import Outlook
from polyfed.methods.gp.model import GPModel, prepared_rows
from polyfed.modelling.memory import exact_bytes, holds

# Each entry of a covariance is made for every latent and gone through many times, at the speed of memory and not of products:
# as long as so many operations, by what a round of 10,000 clients of 160 rows takes.
PER_ENTRY = 3000.0
SETTLING = 10  # mean-field steps until predictions stand still, about; one where all sites are fixed
SPARED = 1000  # rows beyond which inducing inputs would spare time


def outlook_of(model: GPModel, values: Mapping[str, Tensor], data: ClientData, *, steps: int, mf_steps: int) -> Outlook:
    """Of a Gaussian process with this Θ: `steps` times an E-step of `mf_steps` and a gradient."""
    rows = prepared_rows(data, model.likelihoods)
    sparsity = model.config.sparsity
    settling = 1 if rows.n_fixed == len(rows) else SETTLING
    n_rows, n_latents = len(rows), model.prior.n_latents
    points = sparsity.points_for(n_rows, n_latents)
    if points is None:
        cube, square = float(n_rows) ** 3, PER_ENTRY * n_latents * float(n_rows) ** 2
        # A factor is a third of a cube; its inverse, which variances and the gradient want, five thirds.
        work = steps * ((mf_steps + 5) * cube / 3 + square)
        return Outlook(work, (settling + 5) * cube / 3 + square, exact=work if n_rows > SPARED else 0.0)
    with torch.no_grad():
        Z = sparsity.choose(model.prior.with_values(values), rows)
    n_inducing = 0 if Z is None else len(Z)
    # For each input products of its features with each other, and with L⁻¹; for the gradient twice as many, and features anew.
    wide = 2.0 * len(data.x) * float(n_latents * n_inducing) ** 2
    chosen = n_inducing if sparsity.points is None else None
    return Outlook(steps * (mf_steps + 4) * wide, settling * wide, chosen, holds(exact_bytes(n_rows, n_latents)))
