"""The exact posterior of a client's rows, all N of them in one Gaussian; or of a batch of clients at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from polyfed.gp import compiled
from polyfed.gp.knowledge import Evidence, Informed, Knowledge
from polyfed.gp.linalg import Gaussian, NotPositiveDefinite, log_z, solve
from polyfed.gp.lmc import Distances, Gather, latents_of, lmc_covariance
from polyfed.gp.meanfield import Marginals, Posterior
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.schur import Elimination, Sketch

if TYPE_CHECKING:
    from polyfed.gp.compiled.inference import Solution


class ExactModel:
    """Prior and rows, with the covariance that both imply; `solve` turns sites into a posterior.

    The covariance is built once, with its graph, and serves all steps of inference and the gradient after them; where
    compiled code makes its own, only if somebody else asks for it. For a batch, the prior may be one for all clients or a stack
    with one for each.
    """

    def __init__(
        self, prior: Prior, rows: Rows, distances: Distances | None = None, knowledge: Knowledge | None = None
    ) -> None:
        """`distances` of an earlier model of the same rows spare their computation, if the kernels see the inputs;
        `knowledge` is what others know of latents that are shared."""
        seen = prior.seen(rows.x)
        self.prior, self.rows = prior, rows.around(prior.mu(seen))
        known = distances if prior.sees_inputs else None
        self.distances = known or Distances(prior.project(seen))
        self._eliminated: Elimination | None = None
        self.a = rows.A @ prior.W
        self._differentiable = torch.is_grad_enabled()
        self.latents = None if knowledge is not None else latents_of(prior, self.distances)
        self.informed = None
        if knowledge is not None:
            gather = Gather(rows.at, rows.x.shape[-2])
            K = lmc_covariance(prior, self.distances, gather, self.a)
            self.informed = Informed(knowledge, prior, rows, self.distances.z, self.a, gather, K)
            self.rows = self.rows.shifted(self.informed.mean)

    @cached_property
    def K(self) -> Tensor:
        """The prior covariance of the rows."""
        if self.informed is not None:
            return self.informed.covariance
        with torch.set_grad_enabled(self._differentiable):
            gather = Gather(self.rows.at, self.rows.x.shape[-2])
            return lmc_covariance(self.prior, self.distances, gather, self.a)

    def infer_at_once(
        self, start: Marginals | None, *, tolerance: float, max_steps: int, accelerate: bool
    ) -> Posterior | None:
        """All of inference, compiled; None if it has to be done step by step."""
        solver = compiled.solver()
        if solver is None or (layout := solver.layout_of(self.rows)) is None:
            return None
        wanted = torch.is_grad_enabled() and any(value.requires_grad for value in self.prior.parameters.values())
        try:
            q = solver.solve_model(
                self, layout, start, tolerance=tolerance, max_steps=max_steps, accelerate=accelerate, wanted=wanted
            )
        except NotPositiveDefinite as error:
            raise self._named(error) from None
        return Posterior(q, q.history, q.converged)

    def solved(self, h: Tensor, r: Tensor) -> Gaussian:
        """The posterior of these sites without any elimination."""
        return solve(self.K.detach(), r, h)

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of f̃ before any label: where inference starts if it has nothing better."""
        v = self.K.detach().diagonal(dim1=-2, dim2=-1).clone()
        return torch.zeros_like(v), v

    def solve(self, h: Tensor, r: Tensor) -> Gaussian:
        """The posterior of these sites."""
        return self.complete(self.step(h, r))

    def step(self, h: Tensor, r: Tensor) -> Gaussian | Sketch:
        """As much of it as the next step of inference needs; less than all where some sites never change."""
        n, K = self.rows.n_fixed, self.K.detach()
        try:
            if n in (0, len(self.rows)):
                return solve(K, r, h)
            if self._eliminated is None or not self._eliminated.fits(h, r):
                self._eliminated = Elimination(K, h[..., :n], r[..., :n])
            return self._eliminated.step(h, r)
        except NotPositiveDefinite as error:
            raise self._named(error) from None

    def _named(self, error: NotPositiveDefinite) -> NotPositiveDefinite:
        task = self.rows.task_of(error.batch * len(self.rows) + error.row)
        client = f"client {error.batch} of the batch, " if self.rows.batch_shape else ""
        return error.named(f"{client}task {task!r}", self.prior.broken())

    def complete(self, q: Gaussian | Sketch | Solution) -> Any:
        """The whole posterior: what gradients and predictions need beyond what inference does."""
        if not isinstance(q, Sketch):
            return q
        assert self._eliminated is not None
        return self._eliminated.complete(q)

    def bound(self, q: Gaussian | Sketch | Solution) -> Tensor:
        """The ELBO of q (elbo-r), differentiable in Θ; one value for each client.

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

    def evidence(self, q: Gaussian) -> Evidence:
        """What the rows say of the latents that are shared."""
        assert self.informed is not None, "nothing is shared"
        return self.informed.evidence(q.h, q.alpha)

    def predict(self, q: Gaussian, x: Tensor) -> LatentPrediction:
        """q(g(x)) at new inputs (equ:predict), of one client.

        The printed formula conditions a task on its own points and on K⁻¹; that loses what the other tasks know. Here
        m = k*ᵀ α and v = k** − ‖L⁻¹ S k*‖², with k* the covariance to every row of every task.
        """
        prior, rows, seen = self.prior, self.rows, self.prior.seen(x)
        z, s = prior.project(seen), q.h.sqrt()
        mean, explained, variance = [], [], []
        at_first, known, known_with = (None, None, []) if self.informed is None else self.informed.at(z)
        for b in range(prior.n_latents):
            k_star = self.a[:, b, None] * prior.latent_covariance(b, self.distances.z, z)[rows.at]  # cov(f, g_b(x))
            if b < len(known_with):
                k_star = k_star - known_with[b]
            mean.append(q.alpha @ k_star if at_first is None else at_first[b] + q.alpha @ k_star)
            explained.append(torch.linalg.solve_triangular(q.L, s[:, None] * k_star, upper=False))
            variance.append(prior.latent_variance(b, z))
        V = torch.stack(explained)  # (B, N, X)
        cov = torch.diag_embed(torch.stack(variance, -1)) - torch.einsum("bnx,cnx->xbc", V, V)
        if known is not None:
            cov = cov - known
        return LatentPrediction(torch.stack(mean, -1), cov, prior.mixing(), prior.mu_by_task(seen))
