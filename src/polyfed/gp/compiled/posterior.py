"""The posterior of one client's rows given their sites; rows whose sites never change are eliminated once (dense.py).

Index 0 are the first n rows, whose sites are fixed, index 1 the M others. `L` holds, from the elimination on, L₀ in its corner
and Y = K₁₀S₀L₀⁻ᵀ below it; K₁ = K₁₁ − YYᵀ is what is left of the covariance. Failures are reported as 1 + the row, 0 for none.
"""

from __future__ import annotations

from math import isfinite, log

from polyfed.gp.compiled.jit import jit, jit_exact
from polyfed.gp.compiled.lapack import add_outer, lauum, potrf, rows_solved, times_left, times_right
from polyfed.gp.compiled.triangles import (
    backward,
    below,
    below_transposed,
    forward,
    invert_block,
    one_plus_scaled,
    roots,
    times_vector,
    variances,
)

BLOCK = 64  # rows of an inverse that are done without LAPACK


@jit_exact
def factored(A, n, ld, w):
    """A ← L, and Σ log L_ii; 1 + the row at which there is none. LAPACK may let NaN through."""
    if n == 0:
        return 0, 0.0
    failed = potrf(A, n, ld, w)
    if failed > 0:
        return failed, 0.0
    half_log_det = 0.0
    for i in range(n):
        if not isfinite(A[i, i]):
            return i + 1, 0.0
        half_log_det += log(A[i, i])
    return 0, half_log_det


@jit
def _blocks(K, s, n, L, K1):
    """L ← I + S₀K₀₀S₀ and, below it, K₁₀S₀; K₁ ← K₁₁."""
    N = K.shape[0]
    for i in range(n):
        k, l, s_i = K[i], L[i], s[i]
        for j in range(i):
            l[j] = s_i * s[j] * k[j]
        l[i] = 1.0 + s_i * s_i * k[i]
    for i in range(n, N):
        k, l, k1 = K[i], L[i], K1[i - n]
        for j in range(n):
            l[j] = k[j] * s[j]
        for j in range(i - n + 1):
            k1[j] = k[n + j]


@jit_exact
def eliminate(K, h, r, s, n, L, K1, w0, m1, half, w, f):
    """Take the first n rows out. Returns the failure and ½ log|B₀|; w0 = L₀⁻¹S₀⁻¹r₀, m1 = Y w0."""
    N = K.shape[0]
    roots(h[:n], s[:n])
    _blocks(K, s, n, L, K1)
    m1[:] = 0.0
    if n == 0:
        return 0, 0.0
    failed, half_log_det = factored(L, n, N, w)
    if failed > 0:
        return failed, 0.0
    for i in range(n):
        half[i] = r[i] / s[i] if h[i] > 0.0 else 0.0
    forward(L, n, half, w0)
    if n < N:
        rows_solved(L, 0, N, L, n * N, N, N - n, n, w, f)
        add_outer(-1.0, K1, 0, N - n, L, n * N, N, N - n, n, w, f)
        below(L, n, w0, m1)
    return 0, half_log_det


@jit_exact
def invert(L, n, ld, w, f):
    """L ← L⁻¹, block by block: for clients of at most a few hundred rows in two thirds of the time that LAPACK takes."""
    for k in range(0, n, BLOCK):
        size = min(BLOCK, n - k)
        invert_block(L, k, size)
        if k > 0:
            times_right(-1.0, L, 0, ld, L, k * ld, ld, size, k, w, f)
            times_left(L, k * ld + k, ld, L, k * ld, ld, size, k, w, f)


@jit_exact
def step(K, K1, L, R1, w0, m1, h, r, s, n, alpha, m, v, u, a1, half, w, f):
    """q(f) for these sites: α, m, the variances of the other rows (those of the first stay zero), R1 = L₁⁻¹.

    Returns the failure and ½ log|B₁|. `u`, `a1` and `half` are space to work in.
    """
    N = K.shape[0]
    M = N - n
    h1, s1 = h[n:], s[n:]
    roots(h1, s1)
    one_plus_scaled(K1, 0, s1, R1)
    failed, half_log_det = factored(R1, M, M, w)
    if failed > 0:
        return failed + n, 0.0
    bare = False  # α = r₀ + S B⁻¹u; r₀ is what a row without precision leaves of r
    for i in range(M):
        rest = r[n + i] - h1[i] * m1[i]
        if h1[i] > 0.0:
            u[i], alpha[n + i] = rest / s1[i], 0.0
        else:
            u[i], alpha[n + i] = 0.0, rest
            bare = bare or rest != 0.0
    if bare:
        times_vector(K1, alpha[n:], a1)
        for i in range(M):
            u[i] -= s1[i] * a1[i]
    forward(R1, M, u, a1)
    backward(R1, M, a1)
    for i in range(M):
        alpha[n + i] += s1[i] * a1[i]
    if n > 0:
        below_transposed(L, n, alpha[n:], half)
        for i in range(n):
            half[i] = w0[i] - half[i]
        backward(L, n, half)
        for i in range(n):
            alpha[i] = s[i] * half[i]
    times_vector(K, alpha, m)
    v[:n] = 0.0
    if M > 0:
        invert(R1, M, M, w, f)
        variances(K1, h1, s1, R1, v[n:], u)
    return 0, half_log_det


@jit_exact
def complete(K, L, R1, h, s, n, v, column, w, f):
    """The variances of all rows, and L ← L⁻¹ of the whole: its blocks are L₀⁻¹, −L₁⁻¹S₁Y L₀⁻¹ and L₁⁻¹."""
    N = K.shape[0]
    for i in range(N - n):
        row, r1, s_i = L[n + i], R1[i], s[n + i]
        for j in range(n):
            row[j] *= s_i
        for j in range(i + 1):
            row[n + j] = r1[j]
    if n > 0:
        invert(L, n, N, w, f)
        if n < N:
            times_right(-1.0, L, 0, N, L, n * N, N, N - n, n, w, f)
            times_left(R1, 0, N - n, L, n * N, N, N - n, n, w, f)
    variances(K, h, s, L, v, column)


@jit_exact
def inverse(L, w):
    """L⁻¹ → B⁻¹, its lower triangle."""
    if L.shape[0] > 0:
        lauum(L, L.shape[0], L.shape[0], w)


@jit
def minus_kl(h, v, alpha, m, half_log_det):
    """−KL(q‖p), as of linalg.Gaussian."""
    total = 0.0
    for i in range(len(h)):
        total += h[i] * v[i] - alpha[i] * m[i]
    return 0.5 * total - half_log_det
