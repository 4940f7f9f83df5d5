"""What inference relies on, asked of a kernel at a few inputs, before it meets data."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from polyfed.errors import ConfigError
from polyfed.gp.kernels.base import Kernel

N, TOLERANCE = 8, 1e-8  # inputs of a check, and how far its numbers may be off


@lru_cache(maxsize=256)
def check_kernel(kernel: Kernel, dims: int = 2, n_scales: int = 1) -> None:
    """What inference relies on, asked of a kernel at a few inputs, before it meets data: an error that says what is wrong with
    it, if something is: shapes, numbers, symmetry, definiteness, batches.

    >>> from polyfed.gp.kernels import periodic, rbf
    >>> check_kernel(rbf + periodic)
    """
    for part in kernel.parts:
        check_kernel(part, dims, n_scales)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, dims, dtype=torch.float64, generator=generator)
    x = torch.cat([x, x[:1]]).requires_grad_()  # with an input that comes twice
    length = torch.full((n_scales,), (2.0 * dims) ** 0.5, dtype=torch.float64)
    logs = {name: value.requires_grad_() for name, value in kernel.start(length).items()}
    for name, positive in kernel.parameters.items():
        if logs[name].shape != (positive.size(n_scales),):
            raise _wrong(
                kernel, f"starts {name!r} with shape {tuple(logs[name].shape)}", "let `start` follow `parameters`"
            )
    phi = {name: value.exp() for name, value in logs.items()}
    K = kernel(x, x, phi)
    if not isinstance(K, Tensor) or tuple(K.shape) != (N + 1, N + 1):
        found = tuple(K.shape) if isinstance(K, Tensor) else type(K).__name__
        raise _wrong(kernel, f"gives {found} for {N + 1} inputs and {N + 1}", "give a matrix of all pairs")
    if not bool(torch.isfinite(K).all()):
        raise _wrong(kernel, "is not finite at ordinary inputs", "look for divisions and roots")
    if bool((K - K.mT).abs().max() > TOLERANCE):
        raise _wrong(kernel, "is not symmetric", "give a function of both inputs alike")
    if bool((K.diagonal() - 1.0).abs().max() > TOLERANCE):
        raise _wrong(kernel, f"has variance {K[0, 0].item():.4g}", "divide by √(k(x, x) k(x', x'))")
    least = torch.linalg.eigvalsh(K.detach())[0].item()
    if least < -TOLERANCE * N:
        raise _wrong(kernel, f"is not positive semi-definite (an eigenvalue of {least:.3g})", "use another")
    _same(kernel, kernel.diagonal(x, phi), K.diagonal(), "its diagonal alone")
    _same(kernel, kernel(x[:3], x, phi), K[:3], "a part of the matrix")
    both = {name: torch.stack([value, value]) for name, value in phi.items()}
    _same(kernel, kernel(torch.stack([x, x]), torch.stack([x, x]), both)[1], K, "a batch of two clients")
    if K.requires_grad:
        found = torch.autograd.grad(K.square().sum(), [x, *logs.values()], allow_unused=True)
        if not all(one is None or bool(torch.isfinite(one).all()) for one in found):
            raise _wrong(kernel, "has a derivative that is not finite where inputs coincide", "bound it away from zero")


def _same(kernel: Kernel, found: Tensor, wanted: Tensor, what: str) -> None:
    if found.shape != wanted.shape or bool((found - wanted).abs().max() > TOLERANCE):
        raise _wrong(kernel, f"gives other numbers for {what}", "compute each pair of inputs from these two alone")


def _wrong(kernel: Kernel, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"kernel '{kernel}' {what}", remedy=remedy)
