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
        self.distances = (distances if prior.sees_inputs else None) or Distances(prior.project(seen))
        self.a = rows.A @ prior.W
        self._differentiable = torch.is_grad_enabled()
        self.latents, self.knowledge = latents_of(prior, self.distances), knowledge

    def _informed_rows(self) -> Rows:
        return self.plain if self.informed is None else self.plain.shifted(self.informed.mean)

    # Made when first asked for, and replaced by what compiled inference finds: an attribute, as the protocol has it.
    rows: Rows = cached_property(_informed_rows)  # pyright: ignore[reportAssignmentType]

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
        seen = self.prior.features_of(x)
        mean, cov = self.latents_at(getattr(q, "whole", q), self.prior.project(seen))
        return LatentPrediction(mean, cov, self.prior.mixing(), self.prior.mu_by_task(seen))

    def latents_at(
        self, q: Gaussian, z: Float[Tensor, "*batch X E"]
    ) -> tuple[Float[Tensor, "*batch X B"], Float[Tensor, "*batch X B B"]]:
        """Mean and covariance of the latents where kernels see z, of one client or of each in a batch."""
        prior, at = self.prior, self.plain.at
        variance = torch.stack([prior.latent_variance(b, z) for b in range(prior.n_latents)], -1)
        mean, cov = torch.zeros_like(variance), torch.diag_embed(variance)
        k_star = []  # cov(f, g_b(x)), (..., N, X) of each latent
        for b in range(prior.n_latents):
            k = prior.latent_covariance(b, self.distances.z, z)
            k_star.append(
                self.a[..., b, None] * (k[at] if at.dim() == 1 else torch.take_along_dim(k, at[..., None], -2))
            )
        if self.informed is not None:
            shared = slice(self.informed.knowledge.n_shared)
            mean[..., shared], known, with_rows = self.informed.at(z)
            cov[..., shared, shared] -= known
            k_star[shared] = [k - less for k, less in zip(k_star[shared], with_rows, strict=True)]
        mean += torch.stack([(q.alpha[..., None, :] @ k)[..., 0, :] for k in k_star], -1)
        V = torch.linalg.solve_triangular(q.L, q.h.sqrt()[..., None] * torch.cat(k_star, -1), upper=False)
        V = V.unflatten(-1, (prior.n_latents, z.shape[-2])).movedim((-3, -1), (-1, -3))  # (..., X, B, N)
        return mean, cov - V @ V.mT
