"""What LAPACK alone takes for the factorisations of a step: torch's, which is MKL on most machines, and scipy's, OpenBLAS.

The floor of a step is two Cholesky factorisations (one for each mean-field step) and one inverse (for the gradient). Compiled
inference calls scipy's: where that is the faster of the two, it can be below the floor of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from polyfed.gp import compiled

STEPS = 2  # mean-field steps of a round; a warm start needs no more


def torch_floor(shapes: Sequence[torch.Size]) -> Callable[[], None]:
    """Two Cholesky factorisations and one inverse for each shape (..., N, N)."""
    matrices = [_positive_definite(shape) for shape in shapes]

    def run() -> None:
        for A in matrices:
            for _ in range(STEPS - 1):
                torch.linalg.cholesky_ex(A)
            torch.cholesky_inverse(torch.linalg.cholesky_ex(A).L)

    return run


def scipy_floor(shapes: Sequence[torch.Size]) -> Callable[[], None] | None:
    """The same by the routines that compiled inference calls; None if there is none."""
    if compiled.solver() is None:
        return None
    factor = _compiled()
    matrices = [_positive_definite(shape).reshape(-1, *shape[-2:]).numpy() for shape in shapes]

    def run() -> None:
        for A in matrices:
            factor(A, STEPS)

    return run


@cache
def _compiled() -> Callable[[np.ndarray, int], None]:
    from numba import njit

    from polyfed.gp.compiled.lapack import lauum, potrf, trtri

    @njit
    def factor(A: np.ndarray, steps: int) -> None:
        n, w = A.shape[1], np.empty(8, np.int32)
        for c in range(len(A)):
            for _ in range(steps):
                L = A[c].copy()
                potrf(L, n, n, w)
            trtri(L, n, n, w)  # potri is these two
            lauum(L, n, n, w)

    return factor


def _positive_definite(shape: torch.Size) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(shape, dtype=torch.float64, generator=generator)
    return half @ half.mT / shape[-1] + torch.eye(shape[-1], dtype=torch.float64)
