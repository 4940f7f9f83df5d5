"""Features of shared latents, φ_b(x) = L_b⁻¹ k_b(Z, x) with L_b L_bᵀ = k_b(Z, Z): under u ~ N(0, I), φ_b(x)ᵀu has the
covariance that k_b has through the points Z. Linear and affine kernels need no points: the input itself (at length one) is
their feature, exactly. Amplitudes are left to the mixing weights: here k_b(x, x) = 1.

Z is made of nobody's data: points of a Sobol sequence through the normal quantile, in the units that all clients agreed on.

Where the clients of a batch have the same kernel, k(Z, Z) is factored once for all of them, and so is its derivative:

    ∂φ/∂φ₁_d = L⁻¹ ∂k/∂φ₁_d − tril(T_d) φ,     T_d = L⁻¹ (∂k(Z, Z)/∂φ₁_d) L⁻ᵀ, half of its diagonal

so a client's own part of the gradient is products with M × M matrices, and nothing of it is factored again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyfed.gp.blocks import spans
from polyfed.gp.kernels import MetricKernel
from polyfed.gp.linalg import cholesky
from polyfed.gp.prior import Prior

if TYPE_CHECKING:
    from jaxtyping import Float

# Of k(Z, Z), relative to its variance: one number for all, for the meaning of u must not depend on where it was computed.
JITTER = 1e-8
EDGE = 1e-3  # of probability, beyond which no point lies


def normal_points(n: int, dims: int) -> Float[Tensor, "{n} {dims}"]:
    """n points that fill a standard normal evenly, (n, dims); always the same.

    >>> normal_points(3, 2).shape
    torch.Size([3, 2])
    """
    uniform = torch.quasirandom.SobolEngine(dims, scramble=True, seed=0).draw(n, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(EDGE, 1.0 - EDGE))


def n_features(prior: Prior, b: int, n_points: int) -> int:
    """The number of features of latent b with n points."""
    return prior.kernels[b].n_features(prior.dims, n_points)


def whitened(
    prior: Prior, b: int, Z: Float[Tensor, "M D"], z: Float[Tensor, "*batch N E"]
) -> Float[Tensor, "*batch N F"]:
    """φ_b of amplitude one at each z (..., U, D), (..., U, M); differentiable in Θ."""
    features, mine = prior.kernels[b].features, prior.of_latent(b, z)
    if features is not None:
        return features(mine)
    k = prior.correlation(b, Z, mine)
    return torch.linalg.solve_triangular(root(prior.correlation(b, Z, Z)), k, upper=False).mT


def features_of_rows(
    prior: Prior, n_shared: int, Z: Float[Tensor, "M D"], z: Float[Tensor, "*batch N E"], a: Float[Tensor, "*batch N B"]
) -> Float[Tensor, "*batch N P"]:
    """Φ (..., N, P), given what the kernels see of each row's input and its mixing vectors; differentiable in Θ."""
    latents = range(n_shared)
    a = torch.stack([a[..., b] * prior.amplitude(b)[..., None].sqrt() for b in latents], -1)
    names = [f"kernels.{b}.log_phi1" for b in latents if f"kernels.{b}.log_phi1" in prior.parameters]
    kernels = [kernel for kernel in prior.kernels[:n_shared] if isinstance(kernel, MetricKernel)]
    if prior.sees_inputs and len(kernels) == n_shared and all(prior.is_common(name) for name in names):
        return _Common.apply(kernels, Z, z, a, *(prior.phi1(b) for b in latents))  # pyright: ignore[reportReturnType]
    return torch.cat([a[..., b, None] * whitened(prior, b, Z, z) for b in latents], -1)


def root(Kzz: Float[Tensor, "*batch M M"]) -> Float[Tensor, "*batch M M"]:
    """L with L Lᵀ = Kzz, of a kernel of amplitude one."""
    return cholesky(Kzz + JITTER * torch.eye(Kzz.shape[-1], dtype=Kzz.dtype))


def inverse_root(kernel: MetricKernel, Z: Tensor, phi1: Tensor) -> Tensor:
    """R = L⁻¹ of k(Z, Z)."""
    eye = torch.eye(len(Z), dtype=Z.dtype)
    return torch.linalg.solve_triangular(root(kernel(Z, Z, {"phi1": phi1})), eye, upper=False)


def slopes_of_root(kernel: MetricKernel, Z: Tensor, phi1: Tensor, R: Tensor) -> Tensor:
    """tril(T_d) of every input d, half of its diagonal, (D, M, M)."""
    points = kernel.scaled(Z, phi1)
    t = kernel.metric(points, points)
    slope = kernel.derivative(t, kernel.profile(t, 1.0))
    by_input = torch.stack([slope * kernel.metric(column, column) for column in Z.split(1, -1)])
    half = (R @ by_input @ R.mT).tril_()
    half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return half


class _Part:
    """One shared latent, whose φ₁ is the same for all clients."""

    def __init__(self, kernel: MetricKernel, Z: Tensor, phi1: Tensor, x: Tensor, a: Tensor, Phi: Tensor, place: slice):
        """Writes its columns of Φ: a R k(Z, x) for rows with inputs x and weights a, of all clients in one matrix."""
        self.kernel, self.Z, self.phi1, self.place = kernel, Z, phi1, place
        if kernel.features is not None:
            self.k = kernel.features(x)  # (all rows of all clients, M)
            torch.mul(self.k, a, out=Phi[:, place])
            return
        self.t = kernel.metric(kernel.scaled(x, phi1), kernel.scaled(Z, phi1))
        self.k = kernel.profile(self.t, 1.0)
        self.R = inverse_root(kernel, Z, phi1)
        torch.mm(self.k * a, self.R.mT, out=Phi[:, place])

    def gradient(self, x: Tensor, a: Tensor, Phi: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient in weights (all rows), and in φ₁ for each client and input."""
        C, N, D = x.shape
        mine = G.flatten(0, 1)[:, self.place]
        if self.kernel.features is not None:
            return (mine * self.k).sum(-1), x.new_zeros(C, D)
        Q = mine @ self.R
        of_a = (Q * self.k).sum(-1)
        E = Q.mul_(a).mul_(self.kernel.derivative(self.t, self.k))
        direct = self.kernel.by_input(E.reshape(C, N, E.shape[-1]), x, self.Z)
        inner = (G[..., self.place].mT @ Phi[..., self.place]).flatten(-2)
        return of_a, direct - inner @ slopes_of_root(self.kernel, self.Z, self.phi1, self.R).flatten(1).mT


class _Common(torch.autograd.Function):
    """Φ of clients that have the same kernels; the gradient is that of each client by itself."""

    @staticmethod
    def forward(ctx, kernels: list[MetricKernel], Z: Tensor, x: Tensor, a: Tensor, *phi1: Tensor) -> Tensor:
        widths = [kernel.n_features(x.shape[-1], len(Z)) for kernel in kernels]
        Phi = x.new_empty(*x.shape[:-1], sum(widths))
        flat_x, flat_Phi = x.reshape(-1, x.shape[-1]), Phi.reshape(-1, sum(widths))
        ctx.parts, ctx.shapes = [], [own.shape for own in phi1]
        for kernel, own, weights, place in zip(kernels, phi1, a.unbind(-1), spans(widths), strict=True):
            own = own.reshape(-1, own.shape[-1])[0]
            ctx.parts.append(_Part(kernel, Z, own, flat_x, weights.reshape(-1, 1), flat_Phi, place))
        ctx.save_for_backward(x, a, Phi)
        return Phi

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        (G,) = grad_outputs
        x, a, Phi = ctx.saved_tensors
        single = x.dim() == 2
        if single:
            x, Phi, G = x[None], Phi[None], G[None]
        of_a, of_phi1 = [], []
        for b, (part, shape) in enumerate(zip(ctx.parts, ctx.shapes, strict=True)):
            weights, lengths = part.gradient(x, a[..., b].reshape(-1, 1), Phi, G)
            of_a.append(weights.reshape(a.shape[:-1]))
            lengths = lengths if shape[-1] > 1 else lengths.sum(-1, keepdim=True)
            of_phi1.append(lengths[0] if single else lengths)
        return None, None, None, torch.stack(of_a, -1), *of_phi1
