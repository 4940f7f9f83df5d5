"""What a round will cost a client: operations by counting, so that nobody waits for hours without having been told."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.methods.base import Outlook
from polyfed.methods.gp_model import GPModel, prepared_rows

SMALL = 1000  # rows that take no time worth telling of
SETTLING = 30  # mean-field steps until predictions stand still, about; one where all sites are fixed


def outlook_of(model: GPModel, values: Mapping[str, Tensor], data: ClientData, *, steps: int, mf_steps: int) -> Outlook:
    """Of a Gaussian process with this Θ: `steps` times an E-step of `mf_steps` and a gradient."""
    rows = prepared_rows(data, model.likelihoods)
    sparsity = model.structure.sparsity
    settling = 1 if rows.n_fixed == len(rows) else SETTLING
    points = sparsity.points_for(len(rows), model.prior.n_latents)
    if len(rows) < SMALL and points == sparsity.points:
        return Outlook()
    if points is None:
        cube = float(len(rows)) ** 3
        # A factor is a third of a cube; its inverse, which variances and the gradient want, five thirds.
        return Outlook(steps * (mf_steps + 5) * cube / 3, (settling + 5) * cube / 3)
    with torch.no_grad():
        Z = sparsity.choose(model.prior.with_values(values), rows)
    n_inducing = 0 if Z is None else len(Z)
    wide = len(rows) * float(model.prior.n_latents * n_inducing) ** 2
    # ΦᵀHΦ, the variances and Φ itself; for the gradient Φ is made and gone through backwards once more.
    return Outlook(
        steps * (4 * mf_steps + 12) * wide, 4 * settling * wide, n_inducing if sparsity.points is None else None
    )
