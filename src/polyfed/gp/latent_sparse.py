"""Inducing variables of the latent functions: the sparse posterior of gp/sparse.py, its bound never above the exact one.

g_b(Z) = L_b w_b with k_b(Z, Z) = L_b L_bᵀ, so that with A_b(x) = (L_b⁻¹ k_b(Z, x))ᵀ

    Φ_j = [a_jb A_b(x_j)]_b,      d_j = Σ_b a_jb² (k_b(x_j, x_j) − ‖A_b(x_j)‖²)

All sums over rows are sums over inputs (gp/blocks.py), and the gradient of logZ is written down instead of being taken back
through them: only A_b itself is differentiated, chunk by chunk, when the gradient is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyfed.gp.blocks import add_gram, at_inputs, explained, inverse_root, mirrored, mixed, slopes, spans
from polyfed.gp.linalg import cholesky, jittered_cholesky
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows
from polyfed.gp.sparse import InducingModel, Part, SparseGaussian, minus_kl_of

KEPT = 2**24  # numbers of all features together, up to which they are kept between two steps of inference


@dataclass(frozen=True)
class LatentSparseGaussian(SparseGaussian):
    """With what its gradient and its evidence need: sums over the rows, and for each input and latent what q says there."""

    gram: Tensor  # ΦᵀHΦ
    linear: Tensor  # Φᵀr
    means: Tensor  # (inputs, B) A_b β_b
    Q: Tensor  # (inputs, B, B)
    left: Tensor  # (inputs, B) the variance that Z leaves unsaid


class LatentSparseModel(InducingModel):
    """Each latent has variables of its own; before any label w ~ N(0, P⁻¹), P = I unless something is known."""

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor) -> None:
        super().__init__(prior, rows, Z)
        self.a = (rows.A @ prior.W).detach()
        self.used, self.of_row = rows.at.unique(return_inverse=True)  # rows of one datum share their input
        self.roots: list[Tensor] = []  # of each latent that has inducing inputs, with their graph
        self._features: dict[int, tuple[list[Tensor], Tensor]] = {}
        self.sent: Tensor | None = None  # (rows,) a mean of f that is known of its latents

    @property
    @abstractmethod
    def widths(self) -> list[int]:
        """The number of variables of each latent."""

    @abstractmethod
    def _project(self, b: int, z: Tensor, roots: Sequence[Tensor], z_Z: Tensor) -> tuple[Tensor, Tensor]:
        """A_b (n, M_b) at z, and the variance of g_b(z) that it leaves, (n,)."""

    @property
    def size(self) -> int:
        return sum(self.widths)

    @property
    def columns(self) -> list[slice]:
        return spans(self.widths)

    def half_log_det(self) -> Tensor:
        """½ log |P|."""
        return torch.zeros((), dtype=torch.float64)

    def known_mean(self) -> list[Tensor]:
        """E[w_b] of each latent before any label, of its first variables; the others have mean zero."""
        return [torch.zeros(0, dtype=torch.float64) for _ in self.widths]

    # ---- inference ------------------------------------------------------------------------------------------

    def design_matrix(self, part: Part) -> tuple[Tensor, Tensor]:
        z, of_row = self.inputs(part)
        Phi, d = [], self.a.new_zeros(len(of_row))
        for b, weight in enumerate(self.a[part].T):
            A, left = self._project(b, z, self.roots, self.z_Z)
            Phi.append(weight[:, None] * A[of_row])
            d = d + weight.square() * left[of_row]
        return torch.cat(Phi, 1), d

    def latent_features(self, part: slice) -> tuple[list[Tensor], Tensor]:
        """A_b of some of the used inputs, and what each latent leaves there, (n, B); without their graph."""
        with torch.no_grad():
            if part.start not in self._features:
                made = self._made(part, self._seen, self.roots, self.z_Z)
                if len(self.used) * self.size > KEPT:
                    return made
                self._features[part.start] = made
            return self._features[part.start]

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            _, v = self._of_rows(*self._marginals(cholesky(self.precision()), self.a.new_zeros(self.size)))
        return torch.zeros_like(v), v

    def statistics(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = self.columns
        H, R = self._at_inputs(h, r)
        gram, linear, trace = h.new_zeros(self.size, self.size), h.new_zeros(self.size), h.new_zeros(())
        with torch.no_grad():
            for part in self.chunks(len(self.used)):
                A, left = self.latent_features(part)
                add_gram(gram, A, H[part], columns)
                linear += torch.cat([R[part, b] @ mine for b, mine in enumerate(A)])
                trace += 0.5 * (H[part].diagonal(dim1=1, dim2=2) * left).sum()
        return mirrored(gram, columns), linear, trace

    def solve(self, h: Tensor, r: Tensor) -> LatentSparseGaussian:
        with torch.no_grad():
            gram, linear, trace = self.statistics(h, r)
            P = self.precision()
            L, beta = self.solved(P + gram, linear)
            means, Q, left = self._marginals(L, beta)
            m, v = self._of_rows(means, Q, left)
            minus_kl = minus_kl_of(h, v, trace, beta @ P @ beta, L) + self.half_log_det()
            logz = 0.5 * linear @ beta - L.diagonal().log().sum() + self.half_log_det() - trace
            return LatentSparseGaussian(r, h, L, beta, m, v, logz, trace, minus_kl, gram, linear, means, Q, left)

    def _marginals(self, L: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For each used input A_b β_b of each latent, Q, and the variance left."""
        n, B, R = len(self.used), len(self.widths), inverse_root(L)
        means, Q, left = L.new_empty(n, B), L.new_empty(n, B, B), L.new_empty(n, B)
        for part in self.chunks(n):
            A, left[part] = self.latent_features(part)
            means[part] = torch.stack([mine @ beta[own] for mine, own in zip(A, self.columns, strict=True)], 1)
            Q[part] = explained(A, R, self.columns)
        return means, Q, left

    def _of_rows(self, means: Tensor, Q: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """(m, v) of the rows."""
        a, at = self.a, self.of_row
        return (a * means[at]).sum(1), mixed(a, Q[at]) + (a.square() * left[at]).sum(1)

    def bound(self, q: SparseGaussian) -> Tensor:
        """The ELBO of q, differentiable in Θ as that of `ExactModel` is."""
        if not torch.is_grad_enabled():
            return q.minus_kl + self.rows.local_bound(self.prior, q.m, q.v)
        assert isinstance(q, LatentSparseGaussian)
        rows, pull = self.rows, torch.zeros_like(q.m)
        if self.sent is None:
            local = rows.local_bound(self.prior, q.m, q.v)
        else:  # a mean that is made of features: how the bound changes with it, and those with Θ
            by = torch.zeros_like(self.sent).requires_grad_()
            local = rows.shifted(by).local_bound(self.prior, q.m, q.v)
            (pull,) = torch.autograd.grad(local, by, retain_graph=True)
        slope = self._slope_of_mixing(q, pull)
        mixing = (self.prior.W * slope).sum()
        kernels = _Later.apply(self, q, pull, *self._carried(), *self.prior.parameters.values())
        return q.minus_kl + local + (mixing - mixing.detach()) + kernels  # pyright: ignore[reportOperatorIssue]

    def predict(self, q: SparseGaussian, x: Tensor) -> LatentPrediction:
        """q(g(x)) at new inputs, with the variance that Z leaves unexplained."""
        seen, columns = self.prior.features_of(x), self.columns
        A, left = self._features_at(self.prior.project(seen), self.roots, self.z_Z)
        of_latents = zip(A, columns, self.known_mean(), strict=True)
        mean = [mine @ q.beta[own] + mine[:, : len(first)] @ first for mine, own, first in of_latents]
        cov = torch.diag_embed(left) + explained(A, inverse_root(q.L), columns)
        return LatentPrediction(torch.stack(mean, -1), cov, self.prior.mixing(), self.prior.mu_by_task(seen))

    # ---- the gradient ---------------------------------------------------------------------------------------

    def _slope_of_mixing(self, q: LatentSparseGaussian, pull: Tensor) -> Tensor:
        """∂/∂W with the features held, (T, B)."""
        with torch.no_grad():
            at, a = self.of_row, self.a
            C = q.Q + q.means[:, :, None] * q.means[:, None, :]
            slope = q.r[:, None] * q.means[at] - q.h[:, None] * ((C[at] @ a[:, :, None])[:, :, 0] + a * q.left[at])
            if self.sent is not None:
                slope += pull[:, None] * self._known_at_inputs()[at]
            return self.rows.A.mT @ slope

    def _carried(self) -> list[Tensor]:
        """What features are made of beside Θ itself and has a graph to it: these, and not their past, are gone through."""
        return [*self.roots, self.z_Z, *([] if self._seen is None else [self._seen])]

    def slopes_of_kernels(self, q: LatentSparseGaussian, pull: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """∂/∂ of what is carried and of Θ, with W, the sites and the carried ones' own past held."""
        n = len(self._carried())
        mine = [one.detach().requires_grad_() for one in inputs[:n]]
        *roots, z_Z, seen = mine if self._seen is not None else (*mine, None)
        leaves, columns = [*mine, *inputs[n:]], self.columns
        H, R = self._at_inputs(q.h, q.r)
        G = at_inputs(pull[:, None] * self.a, self.of_row, len(self.used))
        C = torch.cholesky_inverse(q.L) + q.beta[:, None] * q.beta
        total: list[Tensor | None] = [None] * len(leaves)
        for part in self.chunks(len(self.used)):
            with torch.enable_grad():
                A, left = self._made(part, seen, roots, z_Z)
            weights = slopes([one.detach() for one in A], H[part], C, columns)
            for b, (weight, first) in enumerate(zip(weights, self.known_mean(), strict=True)):
                torch.addr(weight, R[part, b], q.beta[columns[b]], beta=-1.0, out=weight)
                weight[:, : len(first)].addr_(G[part, b], first)
            outputs, grads = [*A, left], [*weights, -0.5 * H[part].diagonal(dim1=1, dim2=2)]
            graphs = [i for i, one in enumerate(outputs) if one.requires_grad]
            found = torch.autograd.grad(
                [outputs[i] for i in graphs], leaves, [grads[i] for i in graphs], allow_unused=True
            )
            total = [b if a is None else a if b is None else a + b for a, b in zip(total, found, strict=True)]
        return total

    # ---- inputs and their features ------------------------------------------------------------------------------

    def _made(
        self, part: slice, seen: Tensor | None, roots: Sequence[Tensor], z_Z: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        at = self.used[part]
        z = self.prior.project(self.prior.features_of(self.rows.x[at]) if seen is None else seen[at])
        return self._features_at(z, roots, z_Z)

    def _features_at(self, z: Tensor, roots: Sequence[Tensor], z_Z: Tensor) -> tuple[list[Tensor], Tensor]:
        """A_b of each latent at z, and what each leaves there, (n, B)."""
        A, left = zip(*(self._project(b, z, roots, z_Z) for b in range(len(self.widths))), strict=True)
        return list(A), torch.stack(left, -1)

    def _at_inputs(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """H and R of all used inputs."""
        a = self.a
        H = (h[:, None] * a)[:, :, None] * a[:, None, :]
        return at_inputs(H, self.of_row, len(self.used)), at_inputs(r[:, None] * a, self.of_row, len(self.used))

    def _known_at_inputs(self) -> Tensor:
        """The known mean of each latent at the used inputs, (n, B)."""
        known = self.known_mean()
        mean = self.a.new_empty(len(self.used), len(known))
        with torch.no_grad():
            for part in self.chunks(len(self.used)):
                A, _ = self.latent_features(part)
                for b, first in enumerate(known):
                    mean[part, b] = A[b][:, : len(first)] @ first
        return mean


class _Later(torch.autograd.Function):
    """Zero, with the gradient of logZ: the features that it needs are made when it is asked for and not before."""

    @staticmethod
    def forward(ctx, model: LatentSparseModel, q: LatentSparseGaussian, pull: Tensor, *inputs: Tensor) -> Tensor:
        ctx.model, ctx.q, ctx.pull, ctx.inputs = model, q, pull, inputs
        return torch.zeros((), dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        found = ctx.model.slopes_of_kernels(ctx.q, ctx.pull, ctx.inputs)
        return None, None, None, *(None if one is None else grad_outputs[0] * one for one in found)


class SparseModel(LatentSparseModel):
    """Inducing variables are the latent functions at Z.

    >>> from polyfed.gp import infer
    >>> from polyfed.gp.inducing import choose_inducing
    >>> from polyfed.gp.likelihoods import Gaussian
    >>> x = torch.linspace(-1.0, 1.0, 50, dtype=torch.float64)[:, None]
    >>> rows = Rows.of(x, {"pulse": (torch.arange(50), torch.sin(3.0 * x[:, 0]))}, {"pulse": Gaussian()})
    >>> prior = Prior(kernels=["rbf"], dims=1, outputs={"pulse": 1}, noise={"pulse": 0.1})
    >>> model = SparseModel(prior, rows, choose_inducing(prior, rows, 5))
    >>> posterior = infer(model)
    >>> model.predict(posterior.q, x[:1]).mean.shape, posterior.q.certificate.item() < 0.1
    (torch.Size([1, 1]), True)
    """

    def __init__(self, prior: Prior, rows: Rows, Z: Tensor) -> None:
        super().__init__(prior, rows, Z)
        self.roots = [jittered_cholesky(prior.latent_covariance(b, self.z_Z, self.z_Z)) for b in range(prior.n_latents)]

    @property
    def widths(self) -> list[int]:
        return [len(self.Z)] * self.prior.n_latents

    def _project(self, b: int, z: Tensor, roots: Sequence[Tensor], z_Z: Tensor) -> tuple[Tensor, Tensor]:
        A = torch.linalg.solve_triangular(roots[b], self.prior.latent_covariance(b, z_Z, z), upper=False)
        return A.mT, (self.prior.latent_variance(b, z) - A.square().sum(0)).clamp_min(0.0)
