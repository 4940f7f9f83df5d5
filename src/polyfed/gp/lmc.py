"""The prior covariance of rows, K_jk = Σ_b a_jb a_kb k_b(x_j, x_k), and its derivative.

Álvarez, Rosasco, Lawrence: "Kernels for Vector-Valued Functions: A Review", Foundations and Trends in Machine Learning
2012, arXiv:1106.6251.

Distances between inputs are computed once: they serve all latents whose kernels share a metric, and every Θ. The
derivative is written out, because autograd would go back through the distances, which no parameter changes. Where they
do change (a network under the kernels, or a length-scale for each dimension) autograd does it, as for kernels that are
no function of a distance alone (periodic ones, sums, products, a user's own).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from polyfed.gp.kernels import MetricKernel
from polyfed.gp.prior import Prior

if TYPE_CHECKING:
    from jaxtyping import Float


class Distances:
    """Distances of a set of inputs by metric, computed when first asked for and kept."""

    def __init__(self, z: Tensor) -> None:
        self.z = z
        self._known: dict[Callable, Tensor] = {}
        self._kept: dict[tuple[Callable, Callable], Any] = {}

    def __call__(self, kernel: MetricKernel) -> Tensor:
        if kernel.metric not in self._known:
            self._known[kernel.metric] = kernel.metric(self.z, self.z)
        return self._known[kernel.metric]

    def kept(self, make: Callable[[Callable, Tensor], Any], metric: Callable) -> Any:
        """Distances in another form, kept as well: make(metric, z)."""
        if (make, metric) not in self._kept:
            self._kept[make, metric] = make(metric, self.z)
        return self._kept[make, metric]


class Gather:
    """Takes a matrix over inputs to a matrix over rows; free where every row has an input of its own."""

    def __init__(self, at: Tensor, n_inputs: int) -> None:
        N = at.shape[-1]
        self.same = n_inputs == N and bool((at == torch.arange(N)).all())
        self.pairs: tuple[Tensor, ...] = (at[..., :, None], at[..., None, :])
        if at.dim() == 2:
            self.pairs = (torch.arange(at.shape[0])[:, None, None], *self.pairs)

    def __call__(self, per_input: Tensor) -> Tensor:
        return per_input if self.same else per_input[self.pairs]


Latents = tuple[Distances, Tensor, Tensor]  # and φ₀ of each, (..., B), and φ₁, (..., B, 1) or (..., B, D)


def latents_of(prior: Prior, distances: Distances) -> Latents | None:
    """What makes the covariance where no parameter changes a distance but by scales; None elsewhere."""
    if not prior.sees_inputs or not all(isinstance(kernel, MetricKernel) for kernel in prior.kernels):
        return None
    amplitude = torch.stack([prior.amplitude(b) for b in range(prior.n_latents)], -1)
    n_scales = prior.dims if prior.per_dimension else 1
    phi1 = [prior.phi1(b).expand(*amplitude.shape[:-1], n_scales) for b in range(prior.n_latents)]
    return distances, amplitude, torch.stack(phi1, -2)


def lmc_covariance(
    prior: Prior, distances: Distances, gather: Gather, a: Float[Tensor, "*batch N B"]
) -> Float[Tensor, "*batch N N"]:
    """K over the rows with mixing vectors a (..., N, B); differentiable in Θ, and in z if a network made it."""
    latents = latents_of(prior, distances)
    if latents is None or latents[2].shape[-1] > 1:
        K = a.new_zeros(())
        for b in range(prior.n_latents):
            k_b = gather(prior.latent_covariance(b, distances.z, distances.z))
            K = K + a[..., :, None, b] * a[..., None, :, b] * k_b
        return K
    _, amplitude, phi1 = latents
    return _Lmc.apply(a, amplitude, phi1[..., 0], prior.kernels, distances, gather)  # pyright: ignore[reportReturnType]


class _Lmc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, amplitude, phi1, kernels, distances, gather):
        ctx.save_for_backward(a, amplitude, phi1)
        ctx.parts = kernels, distances, gather
        ctx.shapes = []
        K = None
        for b, kernel in enumerate(kernels):
            shape = kernel.profile(distances(kernel), phi1[..., None, None, b])
            ctx.shapes.append(shape)
            outer = (amplitude[..., None, b] * a[..., b])[..., :, None] * a[..., None, :, b]
            K = outer.mul_(gather(shape)) if K is None else K.addcmul_(outer, gather(shape))
        return K

    @staticmethod
    def backward(ctx, *grad_outputs):
        (G,) = grad_outputs
        a, amplitude, phi1 = ctx.saved_tensors
        kernels, distances, gather = ctx.parts
        grad_a, grad_amplitude, grad_phi1 = [], [], []
        for b, kernel in enumerate(kernels):
            a_b, s = a[..., b, None], ctx.shapes[b]
            E = G * gather(s)
            Ea = (E @ a_b)[..., 0]
            grad_a.append(2.0 * amplitude[..., None, b] * Ea)  # G is symmetric, as the derivative of logZ is
            grad_amplitude.append((a[..., b] * Ea).sum(-1))
            if not kernel.has_length_scale:
                grad_phi1.append(torch.zeros_like(phi1[..., b]))
                continue
            # φ₁ ∂s/∂φ₁ = t s'(t) = s · factor · slope; the factor is one number, and a pass over the matrix less
            slope, factor = kernel.log_slope(distances(kernel), phi1[..., None, None, b])
            total = (factor * (a_b * (E.mul_(gather(slope)) @ a_b)).sum((-2, -1), keepdim=True))[..., 0, 0]
            grad_phi1.append(amplitude[..., b] * total / phi1[..., b])
        grads = zip((grad_a, grad_amplitude, grad_phi1), (a, amplitude, phi1), strict=True)
        # summed over the clients of a batch that share one prior
        return *(torch.stack(grad, -1).sum_to_size(to.shape) for grad, to in grads), None, None, None
