"""The exact posterior of a client's rows: all N of them in one Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp.linalg import Gaussian, NotPositiveDefinite, log_z, solve
from polyfed.gp.prior import Prior, lmc_covariance
from polyfed.gp.rows import Rows


class ExactModel:
    """Prior and rows, with the covariance that both imply; `solve` turns sites into a posterior.

    The covariance is built once, with its graph, and serves all steps of inference and the gradient after them.
    """

    def __init__(self, prior: Prior, rows: Rows) -> None:
        self.prior, self.rows = prior, rows
        self.z = prior.eta(rows.x)
        self.a = rows.A @ prior.W
        self.K = lmc_covariance(prior, self.z, rows.at, self.a)

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of f before any label: where inference starts if it has nothing better."""
        v = self.K.detach().diagonal().clone()
        return torch.zeros_like(v), v

    def solve(self, h: Tensor, r: Tensor) -> Gaussian:
        try:
            return solve(self.K.detach(), r, h)
        except NotPositiveDefinite as error:
            task = self.rows.task_of(error.row)
            raise NotPositiveDefinite(error.what, row=error.row, where=f"task {task!r}", remedy=error.remedy) from None

    def bound(self, q: Gaussian) -> Tensor:
        """The ELBO of q (elbo-r), differentiable in Θ.

        −KL(q‖p) = logZ − E_q[rᵀf − ½fᵀHf], so terms (a) to (d) collapse into logZ + Σ (ℓ − r m + ½ h E[f²]). Sites and
        moments enter as constants: at the fixed point of inference their own derivatives vanish (envelope theorem), so
        the gradient of this expression is the whole gradient of the bound.
        """
        cancel = (q.r * q.m - 0.5 * q.h * q.second_moment).sum()
        return log_z(self.K, q.r, q.h, q) + self.rows.local_bound(self.prior, q.m, q.v) - cancel
