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


def shared_floor(n_clients: int, n_rows: int, width: int, n_points: int, n_curved: int) -> Callable[[], None] | None:
    """What knowledge of shared latents (gp/knowledge.py) takes at least: the factor of Ω₋, Φ, ΦL⁻ᵀ, both covariances,
    Φ(I − Ω₋⁻¹), the derivative in Φ and in the points' kernels, and the evidence. No kernel is evaluated, nothing copied."""
    if compiled.solver() is None:
        return None
    algebra = _compiled_shared()
    omega, covariance = (_positive_definite(torch.Size([n, n])).numpy() for n in (width, n_rows))
    Phi = np.random.default_rng(0).standard_normal((n_rows, width)) / width

    def run() -> None:
        algebra(omega, covariance, Phi, n_points, n_curved, n_clients)

    return run


def shared_operations(n_rows: int, width: int, n_points: int, n_curved: int) -> float:
    """Of the same, for a client: additions and multiplications."""
    N, P, M = n_rows, width, n_points
    return P**3 / 3 + N**3 / 3 + 3 * N * P**2 + 5 * N**2 * P + 4 * n_curved * N * M**2


@cache
def _compiled_shared() -> Callable[..., None]:
    from numba import njit

    from polyfed.gp.compiled import lapack

    potrf, add_outer, gram, symmetric_times = lapack.potrf, lapack.add_outer, lapack.gram, lapack.symmetric_times
    rows_solved, back, columns_solved = lapack.rows_solved, lapack.rows_solved_back, lapack.columns_solved
    times_right, transposed, products = lapack.times_right, lapack.times_right_transposed, lapack.products_of_columns

    @njit
    def algebra(omega, covariance, Phi, M, n_curved, n_clients):
        N, P = Phi.shape
        w, f, V, G, inner = np.empty(8, np.int32), np.empty(2), Phi.copy(), Phi.copy(), np.empty(M * M)
        for _ in range(n_clients):
            L, K, B = omega.copy(), covariance.copy(), covariance.copy()
            potrf(L, P, P, w)
            for b in range(n_curved):
                transposed(omega, V, b * M, P, N, M, w, f)
            V[:] = Phi
            rows_solved(L, 0, P, V, 0, P, N, P, w, f)
            add_outer(-1e-9, K, 0, N, Phi, 0, P, N, P, w, f)
            add_outer(1e-9, K, 0, N, V, 0, P, N, P, w, f)
            back(L, V, N, P, w, f)
            symmetric_times(1.0, K, V, N, P, G, w, f)
            for b in range(n_curved):
                products(G, Phi, b * M, P, N, M, inner, w, f)
                times_right(1.0, omega, 0, M, G, b * M, P, N, M, w, f)
            potrf(B, N, N, w)
            columns_solved(B, V, N, P, w, f)
            gram(V, N, P, L, w, f)

    return algebra


def _positive_definite(shape: torch.Size) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(shape, dtype=torch.float64, generator=generator)
    return half @ half.mT / shape[-1] + torch.eye(shape[-1], dtype=torch.float64)
