"""LAPACK and BLAS as scipy brings them, by symbol: what is compiled here can be kept on disk and needs no other library.

Matrices are held row by row and seen through their lower triangle, which is LAPACK's upper one, column by column. `at` is the
first element of a matrix within its array, which begins a row (the array itself if nothing is said), and `ld` the distance of
its rows; `w` and `f` are small arrays to pass numbers by address: at least 8 of int32, 2 of float64.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from numba import types
from numba.extending import get_cython_function_address

from polyfed.gp.compiled.jit import jit_exact
from polyfed.gp.compiled.pointers import address_of

UPPER, PLAIN, TRANSPOSED, LEFT, RIGHT = (ord(letter) for letter in "UNTLR")


def _external(module: str, name: str, n_arguments: int) -> types.ExternalFunction:
    symbol = f"polyfed_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(symbol, types.void(*(types.voidptr,) * n_arguments))


_dpotrf = _external("cython_lapack", "dpotrf", 5)
_dtrtri = _external("cython_lapack", "dtrtri", 6)
_dlauum = _external("cython_lapack", "dlauum", 5)
_dgesv = _external("cython_lapack", "dgesv", 8)
_dsyrk = _external("cython_blas", "dsyrk", 10)
_dtrsm = _external("cython_blas", "dtrsm", 11)
_dtrmm = _external("cython_blas", "dtrmm", 11)


@jit_exact
def potrf(A, n, ld, w):
    """A ← L with A = L Lᵀ; the number of the first row at which that fails, 0 if at none."""
    w[0], w[1], w[2], w[3] = n, ld, 0, UPPER
    _dpotrf(address_of(w, 3), address_of(w, 0), address_of(A, 0), address_of(w, 1), address_of(w, 2))
    return w[2]


@jit_exact
def trtri(A, n, ld, w):
    """L ← L⁻¹."""
    w[0], w[1], w[2], w[3], w[4] = n, ld, 0, UPPER, PLAIN
    _dtrtri(address_of(w, 3), address_of(w, 4), address_of(w, 0), address_of(A, 0), address_of(w, 1), address_of(w, 2))


@jit_exact
def lauum(A, n, ld, w):
    """L ← LᵀL (its lower triangle)."""
    w[0], w[1], w[2], w[3] = n, ld, 0, UPPER
    _dlauum(address_of(w, 3), address_of(w, 0), address_of(A, 0), address_of(w, 1), address_of(w, 2))


@jit_exact
def gesv(A, b, n, ld, w):
    """b ← A⁻¹b for a small symmetric A, which is lost; whether A could be inverted. `w` holds 4 + n numbers."""
    w[0], w[1], w[2], w[3] = n, 1, ld, 0
    _dgesv(
        address_of(w, 0),
        address_of(w, 1),
        address_of(A, 0),
        address_of(w, 2),
        address_of(w, 4),
        address_of(b, 0),
        address_of(w, 2),
        address_of(w, 3),
    )
    return w[3] == 0


@jit_exact
def less_outer(C, at_c, ldc, A, at_a, lda, n, k, w, f):
    """C ← C − A Aᵀ (its lower triangle) with A (n, k)."""
    w[0], w[1], w[2], w[3], w[4], w[5] = n, k, lda, ldc, UPPER, TRANSPOSED
    f[0], f[1] = -1.0, 1.0
    _dsyrk(
        address_of(w, 4),
        address_of(w, 5),
        address_of(w, 0),
        address_of(w, 1),
        address_of(f, 0),
        address_of(A, at_a),
        address_of(w, 2),
        address_of(f, 1),
        address_of(C, at_c),
        address_of(w, 3),
    )


@jit_exact
def rows_solved(A, at_a, lda, B, at_b, ldb, n_rows, n, w, f):
    """B ← B L⁻ᵀ for n_rows rows of length n: L⁻¹ of each row."""
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7] = n, n_rows, lda, ldb, LEFT, UPPER, TRANSPOSED, PLAIN
    f[0] = 1.0
    _dtrsm(
        address_of(w, 4),
        address_of(w, 5),
        address_of(w, 6),
        address_of(w, 7),
        address_of(w, 0),
        address_of(w, 1),
        address_of(f, 0),
        address_of(A, at_a),
        address_of(w, 2),
        address_of(B, at_b),
        address_of(w, 3),
    )


@jit_exact
def _trmm(side, m, n, alpha, A, at_a, lda, B, at_b, ldb, w, f):
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7] = m, n, lda, ldb, side, UPPER, PLAIN, PLAIN
    f[0] = alpha
    _dtrmm(
        address_of(w, 4),
        address_of(w, 5),
        address_of(w, 6),
        address_of(w, 7),
        address_of(w, 0),
        address_of(w, 1),
        address_of(f, 0),
        address_of(A, at_a),
        address_of(w, 2),
        address_of(B, at_b),
        address_of(w, 3),
    )


@jit_exact
def times_right(alpha, A, at_a, lda, B, at_b, ldb, n_rows, n, w, f):
    """B ← α B A for a lower triangle A (n, n) and n_rows rows of length n."""
    _trmm(LEFT, n, n_rows, alpha, A, at_a, lda, B, at_b, ldb, w, f)


@jit_exact
def times_left(A, at_a, lda, B, at_b, ldb, n_rows, n, w, f):
    """B ← A B for a lower triangle A (n_rows, n_rows) and n_rows rows of length n."""
    _trmm(RIGHT, n, n_rows, 1.0, A, at_a, lda, B, at_b, ldb, w, f)
