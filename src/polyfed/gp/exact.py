"""The exact posterior of a client's rows, all N of them in one Gaussian; or of a batch of clients at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.dense import DenseModel
from polyfed.gp.knowledge import Evidence, Informed, Knowledge
from polyfed.gp.linalg import Gaussian
from polyfed.gp.lmc import Distances, Gather, latents_of, lmc_covariance
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

if TYPE_CHECKING:
    from jaxtyping import Float


class ExactModel(DenseModel):
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
        seen = prior.features_of(rows.x)
        super().__init__(prior, rows.around(prior.mu(seen)))
        known = distances if prior.sees_inputs else None
        self.distances = known or Distances(prior.project(seen))
        self.a = rows.A @ prior.W
        self._differentiable = torch.is_grad_enabled()
        self.latents, self.knowledge = latents_of(prior, self.distances), knowledge

    def _informed_rows(self) -> Rows:
        return self.plain if self.informed is None else self.plain.shifted(self.informed.mean)

    @cached_property
    def informed(self) -> Informed | None:
        """What the rows receive about shared latents; None if nothing."""
        if self.knowledge is None:
            return None
        with torch.set_grad_enabled(self._differentiable):
            return Informed(self.knowledge, self.prior, self.plain, self.distances.z, self.a, self._gather, self._lmc)

    @cached_property
    def K(self) -> Float[Tensor, "*batch N N"]:  # pyright: ignore[reportIncompatibleVariableOverride]  # of the same type, made later
        """The prior covariance of the rows."""
        return self._lmc if self.informed is None else self.informed.covariance

    @property
    def _lmc(self) -> Tensor:
        with torch.set_grad_enabled(self._differentiable):
            return lmc_covariance(self.prior, self.distances, self._gather, self.a)

    @property
    def _gather(self) -> Gather:
        return Gather(self.plain.at, self.plain.x.shape[-2])

    def evidence(self, q: Gaussian) -> Evidence:
        """What the rows say of the latents that are shared."""
        found = getattr(q, "evidence", None)  # compiled inference has found it with the gradient
        if found is None:
            assert self.informed is not None, "nothing is shared"
            found = self.informed.evidence(q.h, q.alpha)
        return found

    def predict(self, q: Gaussian, x: Float[Tensor, "N D"]) -> LatentPrediction:
        """q(g(x)) at new inputs (equ:predict, eq. 4), of one client.

        The printed formula conditions a task on its own points and on K⁻¹; that loses what the other tasks know. Here
        m = k*ᵀ α and v = k** − ‖L⁻¹ S k*‖², with k* the covariance to every row of every task.
        """
        q = getattr(q, "whole", q)
        prior, rows, seen = self.prior, self.rows, self.prior.features_of(x)
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
