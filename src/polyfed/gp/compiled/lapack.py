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
_dsymm = _external("cython_blas", "dsymm", 12)
_dgemm = _external("cython_blas", "dgemm", 13)
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
def _syrk(trans, alpha, beta, A, at_a, lda, n, k, C, at_c, ldc, w, f):
    w[0], w[1], w[2], w[3], w[4], w[5] = n, k, lda, ldc, UPPER, trans
    f[0], f[1] = alpha, beta
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
def add_outer(alpha, C, at_c, ldc, A, at_a, lda, n, k, w, f):
    """C ← C + α A Aᵀ (its lower triangle) with A (n, k)."""
    _syrk(TRANSPOSED, alpha, 1.0, A, at_a, lda, n, k, C, at_c, ldc, w, f)


@jit_exact
def gram(A, n, k, C, w, f):
    """C ← AᵀA (its lower triangle) with A (n, k)."""
    _syrk(PLAIN, 1.0, 0.0, A, 0, k, k, n, C, 0, k, w, f)


@jit_exact
def _trsm(side, trans, m, n, A, at_a, lda, B, at_b, ldb, w, f):
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7] = m, n, lda, ldb, side, UPPER, trans, PLAIN
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
def rows_solved(A, at_a, lda, B, at_b, ldb, n_rows, n, w, f):
    """B ← B L⁻ᵀ for n_rows rows of length n: L⁻¹ of each row."""
    _trsm(LEFT, TRANSPOSED, n, n_rows, A, at_a, lda, B, at_b, ldb, w, f)


@jit_exact
def rows_solved_back(A, B, n_rows, n, w, f):
    """B ← B L⁻¹ for n_rows rows of length n: L⁻ᵀ of each row."""
    _trsm(LEFT, PLAIN, n, n_rows, A, 0, n, B, 0, n, w, f)


@jit_exact
def columns_solved(A, B, n_rows, n, w, f):
    """B ← L⁻¹ B for n_rows rows of length n, L (n_rows, n_rows)."""
    _trsm(RIGHT, PLAIN, n, n_rows, A, 0, n_rows, B, 0, n, w, f)


@jit_exact
def symmetric_times(alpha, A, B, n_rows, n, C, w, f):
    """C ← α A B for a symmetric A (n_rows, n_rows), seen through its lower triangle, and n_rows rows of length n."""
    w[0], w[1], w[2], w[3], w[4], w[5] = n, n_rows, n_rows, n, RIGHT, UPPER
    f[0], f[1] = alpha, 0.0
    _dsymm(
        address_of(w, 4),
        address_of(w, 5),
        address_of(w, 0),
        address_of(w, 1),
        address_of(f, 0),
        address_of(A, 0),
        address_of(w, 2),
        address_of(B, 0),
        address_of(w, 3),
        address_of(f, 1),
        address_of(C, 0),
        address_of(w, 3),
    )


@jit_exact
def products_of_columns(A, B, at, ld, n_rows, n, C, w, f):
    """C ← AᵀB (n, n) for the n columns of both that begin at element `at`."""
    w[0], w[1], w[2], w[3], w[4], w[5], w[6] = n, n, n_rows, ld, n, PLAIN, TRANSPOSED
    f[0], f[1] = 1.0, 0.0
    _dgemm(
        address_of(w, 5),
        address_of(w, 6),
        address_of(w, 0),
        address_of(w, 1),
        address_of(w, 2),
        address_of(f, 0),
        address_of(B, at),
        address_of(w, 3),
        address_of(A, at),
        address_of(w, 3),
        address_of(f, 1),
        address_of(C, 0),
        address_of(w, 4),
    )


@jit_exact
def _trmm(side, trans, m, n, alpha, A, at_a, lda, B, at_b, ldb, w, f):
    w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7] = m, n, lda, ldb, side, UPPER, trans, PLAIN
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
    _trmm(LEFT, PLAIN, n, n_rows, alpha, A, at_a, lda, B, at_b, ldb, w, f)


@jit_exact
def times_left(A, at_a, lda, B, at_b, ldb, n_rows, n, w, f):
    """B ← A B for a lower triangle A (n_rows, n_rows) and n_rows rows of length n."""
    _trmm(RIGHT, PLAIN, n, n_rows, 1.0, A, at_a, lda, B, at_b, ldb, w, f)


@jit_exact
def times_right_transposed(A, B, at_b, ldb, n_rows, n, w, f):
    """B ← B Aᵀ for a lower triangle A (n, n) and n_rows rows of length n."""
    _trmm(LEFT, TRANSPOSED, n, n_rows, 1.0, A, 0, n, B, at_b, ldb, w, f)
