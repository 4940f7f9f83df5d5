"""How far a sparse posterior is from the exact one: an estimate of the gap between their bounds, in nats.

With the sites fixed, the gap is logZ(K) − logZ of the sparse model. K = ΦΦᵀ + E, and E, what Z leaves unsaid, is mostly a
matter between neighbours. So rows are grouped into blocks of neighbours and E is taken within the blocks only. The cost is
that of some steps of inference, O(N (block² + block · B M + (B M)²)). One block of all rows gives the gap with fixed sites
as it is; that is a little below the gap itself, because the exact posterior would move its sites too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp.latent_sparse import SparseModel
from polyfed.gp.linalg import solve
from polyfed.gp.sparse import SparseGaussian, root_of

BLOCK = 256  # rows whose residuals are taken together


def gap_estimate(model: SparseModel, q: SparseGaussian, *, block: int = BLOCK) -> Tensor:
    """About how many nats the bound would gain if all inputs were inducing inputs; never negative.

    >>> from polyfed.gp import ExactModel, Prior, Rows, infer
    >>> from polyfed.gp.likelihoods import Gaussian
    >>> x = torch.linspace(-3.0, 3.0, 60, dtype=torch.float64)[:, None]
    >>> rows = Rows.of(x, {"pulse": (torch.arange(60), torch.sin(3.0 * x[:, 0]))}, {"pulse": Gaussian()})
    >>> prior = Prior(kernels=["rbf"], dims=1, outputs={"pulse": 1}, noise={"pulse": 0.1})
    >>> model = SparseModel(prior, rows, x[::12])
    >>> sparse, exact = infer(model), infer(ExactModel(prior, rows))
    >>> bool((exact.bound - sparse.bound - gap_estimate(model, sparse.q)).abs() < 1e-6)
    True
    """
    with torch.no_grad():
        gram, linear, logz = torch.zeros_like(q.L), torch.zeros_like(q.beta), torch.zeros_like(q.logz)
        for part in _neighbours(model, block):
            Phi, d = model.design_matrix(part)
            # Given w, the residuals e of a block are a Gaussian with sites of its own; integrated out, they leave
            # a site for Φw: precision S B⁻¹ S, linear term α = (I + HE)⁻¹ r, and the normaliser of e.
            e = solve(_residual(model, part, Phi, d), q.r[part], q.h[part])
            s = e.h.sqrt()
            scaled = s[:, None] * Phi
            gram += scaled.mT @ e.B_inv @ scaled
            linear += e.alpha @ Phi
            logz += e.logz
        L = root_of(gram)
        half = torch.linalg.solve_triangular(L, linear[:, None], upper=False)
        return (logz - L.diagonal().log().sum() + 0.5 * half.square().sum() - q.logz).clamp_min(0.0)


def _residual(model: SparseModel, part: Tensor, Phi: Tensor, d: Tensor) -> Tensor:
    """E = K − ΦΦᵀ among some rows."""
    (z, of_row), a = model.inputs(part), model.a[part]
    K = -Phi @ Phi.mT
    for b in range(model.prior.n_latents):
        k_b = model.prior.latent_covariance(b, z, z)[of_row][:, of_row]
        K += a[:, None, b] * a[None, :, b] * k_b
    K.diagonal().copy_(d)
    return K


def _neighbours(model: SparseModel, block: int) -> list[Tensor]:
    """All rows in blocks of nearby inputs: halved across their widest direction until they are small enough."""
    z = model.prior.eta(model.rows.x)
    small, large = [], [torch.arange(len(model.rows))]
    while large:
        part = large.pop()
        if len(part) <= block:
            small.append(part)
            continue
        at = z[model.rows.at[part]]
        widest = at[:, int((at.amax(0) - at.amin(0)).argmax())]
        large += part[widest.argsort(stable=True)].tensor_split(2)
    return small
