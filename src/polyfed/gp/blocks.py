"""Sums over inputs where each latent function has features of its own: the arithmetic of gp/sparse.py, input by input.

The rows at one input x see it through the same features A_b(x) of each latent b, and differ in their mixing vectors a_j alone:
Φ_j = (a_jb A_b(x_j))_b. So all that the rows at x add to a sum over rows is a matrix of B × B numbers, H(x) = Σ_j h_j a_j a_jᵀ:

    ΦᵀHΦ = [ Σ_x H_bc(x) A_b(x)ᵀ A_c(x) ]_bc,        v_j = Σ_bc a_jb a_jc Q_bc(x_j) + d_j,    Q_bc(x) = A_b(x) (Λ⁻¹)_bc A_c(x)ᵀ

which costs as much for many tasks as for one, and half of it is there by symmetry. With C = Λ⁻¹ + ββᵀ the derivative of logZ is

    ∂logZ/∂A_b(x) = R_b(x) β_b − Σ_c H_bc(x) A_c(x) C_cb,       R(x) = Σ_j r_j a_j

Everywhere `A` is a list with a matrix (inputs, M_b) for each latent, and the columns of w lie in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def at_inputs(of_rows: Tensor, of_row: Tensor, n_inputs: int) -> Tensor:
    """Sums over the rows at each input."""
    return of_rows.new_zeros(n_inputs, *of_rows.shape[1:]).index_add_(0, of_row, of_rows)


def spans(widths: Sequence[int]) -> list[slice]:
    """The columns of each latent.

    >>> spans([2, 3])
    [slice(0, 2, None), slice(2, 5, None)]
    """
    ends = torch.tensor([0, *widths]).cumsum(0).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def add_gram(gram: Tensor, A: Sequence[Tensor], H: Tensor, columns: Sequence[slice]) -> None:
    """Adds Σ_x H_bc A_bᵀA_c to the blocks on and above the diagonal."""
    for b, mine in enumerate(A):
        later = torch.cat([H[:, b, c, None] * A[c] for c in range(b, len(A))], 1)
        gram[columns[b], columns[b].start :].addmm_(mine.mT, later)


def mirrored(gram: Tensor, columns: Sequence[slice]) -> Tensor:
    """The whole matrix, of one whose blocks below the diagonal are missing."""
    for own in columns:
        gram[own.stop :, own] = gram[own, own.stop :].mT
    return gram


def explained(A: Sequence[Tensor], R: Tensor, columns: Sequence[slice]) -> Tensor:
    """Q, (inputs, B, B), for Λ⁻¹ = RᵀR with R = L⁻¹ below the diagonal: no variance can come out negative."""
    V = [mine @ R[own.start :, own].mT for mine, own in zip(A, columns, strict=True)]
    Q = A[0].new_empty(len(A[0]), len(A), len(A))
    for b, mine in enumerate(V):
        for c in range(b, len(V)):
            Q[:, b, c] = Q[:, c, b] = (mine[:, columns[c].start - columns[b].start :] * V[c]).sum(1)
    return Q


def inverse_root(L: Tensor) -> Tensor:
    """R = L⁻¹."""
    return torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype), upper=False)


def slopes(A: Sequence[Tensor], H: Tensor, C: Tensor, columns: Sequence[slice]) -> list[Tensor]:
    """Σ_c H_bc A_c C_cb of each latent b."""
    found = [torch.zeros_like(mine) for mine in A]
    for c, mine in enumerate(A):
        for into, part, weight in zip(
            found, (mine @ C[columns[c]]).split([a.shape[1] for a in A], 1), H[:, c].T, strict=True
        ):
            into.addcmul_(weight[:, None], part)
    return found


def mixed(a: Tensor, Q: Tensor) -> Tensor:
    """Σ_bc a_jb a_jc Q_bc for each row, given Q at its input."""
    return ((Q @ a[:, :, None])[:, :, 0] * a).sum(1)
