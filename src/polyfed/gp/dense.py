"""Rows whose prior covariance is one dense matrix, of any origin: their posterior, and the bound of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp import compiled
from polyfed.gp.linalg import (
    Gaussian,
    NotPositiveDefinite,
    log_z,
    solve,
)
from polyfed.gp.meanfield import Marginals, Posterior
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.schur import Elimination, PartialPosterior

if TYPE_CHECKING:
    from jaxtyping import Float

    from polyfed.gp.compiled.inference import Solution
    from polyfed.gp.knowledge import Knowledge
    from polyfed.gp.lmc import Latents


class DenseModel:
    """The covariance K of the rows with its graph, all else of the prior being its noise; `solve` turns sites into a
    posterior."""

    latents: Latents | None = None  # what compiled code makes K from, where it can
    K: Tensor
    rows: Rows  # around all that is known of them before their labels; `plain` lack what they get about shared latents
    knowledge: Knowledge | None = None  # what the rows receive about shared latents

    def __init__(self, prior: Prior, rows: Rows, K: Tensor | None = None) -> None:
        """Without `K`, a subclass makes it and the rows when they are first asked for."""
        self.prior, self.plain = prior, rows
        if K is not None:
            self.K, self.rows = K, rows
        self._eliminated: Elimination | None = None

    def infer_at_once(
        self, start: Marginals | None, *, of_f: bool, tolerance: float, max_steps: int, accelerate: bool
    ) -> Posterior | None:
        """All of inference, compiled; None if it has to be done step by step."""
        solver = None if self.plain.is_weighted else compiled.solver()  # compiled sums know no weights
        if solver is None or (layout := solver.layout_of(self.plain)) is None:
            return None
        wanted = torch.is_grad_enabled() and any(value.requires_grad for value in self.prior.parameters.values())
        q = solver.solve_model(self, layout, start, of_f, tolerance, max_steps, accelerate, wanted)
        return Posterior(q, q.history, q.converged)

    def prior_marginals(self) -> tuple[Float[Tensor, "*batch N"], Float[Tensor, "*batch N"]]:
        """Mean and variance of f̃ before any label: where inference starts if it has nothing better."""
        v = self.K.detach().diagonal(dim1=-2, dim2=-1).clone()
        return torch.zeros_like(v), v

    def solve(self, h: Float[Tensor, "*batch N"], r: Float[Tensor, "*batch N"]) -> Gaussian:
        """The posterior of these sites."""
        return self.complete(self.step(h, r))

    def step(self, h: Tensor, r: Tensor) -> Gaussian | PartialPosterior:
        """As much of it as the next step of inference needs; less than all where some sites never change."""
        n, K = self.rows.n_fixed, self.K.detach()
        try:
            if n in (0, len(self.rows)):
                return solve(K, r, h)
            if self._eliminated is None or not self._eliminated.fits(h, r):
                self._eliminated = Elimination(K, h[..., :n], r[..., :n])
            return self._eliminated.step(h, r)
        except NotPositiveDefinite as error:
            raise self.named(error) from None

    def named(self, error: NotPositiveDefinite) -> NotPositiveDefinite:
        """The same error with the client and the task of its row."""
        task = self.plain.task_of(error.batch * len(self.plain) + error.row)
        client = f"client {error.batch} of the batch, " if self.plain.batch_shape else ""
        return error.named(f"{client}task {task!r}", self.prior.broken())

    def complete(self, q: Gaussian | PartialPosterior | Solution) -> Gaussian:
        """The whole posterior: what gradients and predictions need beyond what inference does."""
        if not isinstance(q, PartialPosterior):
            return q  # pyright: ignore[reportReturnType]  # a solution answers as a Gaussian does
        assert self._eliminated is not None
        return self._eliminated.complete(q)

    def bound(self, q: Gaussian | PartialPosterior | Solution) -> Tensor:
        """The ELBO of q (elbo-r, eq. 15), differentiable in Θ; one value for each client.

        −KL(q‖p) = logZ − E_q[rᵀf − ½fᵀHf], so terms (a) to (d) collapse into logZ + Σ (ℓ − r m + ½ h E[f²]). Sites and
        moments enter as constants: at the fixed point of inference their own derivatives vanish (envelope theorem), so
        the gradient of this expression, that of logZ and of ℓ in noise and prior mean, is the whole gradient of the bound.
        """
        value = q.minus_kl + self.rows.local_bound(self.prior, q.m, q.v)
        if torch.is_grad_enabled() and (slope := getattr(q, "slope", None)) is not None:
            value = value + slope()
        elif torch.is_grad_enabled():
            logz = log_z(self.K, q.r, q.h, self.complete(q))
            value = value + (logz - logz.detach())  # zero, with the gradient of logZ
        return value
