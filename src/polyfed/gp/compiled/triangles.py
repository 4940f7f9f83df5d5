"""Loops over lower triangles of symmetric matrices; what is above the diagonal is neither read nor meant when written."""

from __future__ import annotations

from math import sqrt

from polyfed.gp.compiled.jit import jit, jit_exact


@jit
def copied(x, y):
    """y ← x, as far as x goes; a loop, since an assignment of slices would count who holds them."""
    for i in range(len(x)):
        y[i] = x[i]


@jit
def dot(x, y, n):
    """The dot product of the first n numbers."""
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@jit
def one_plus_scaled(K, at, s, B):
    """B ← I + S K S, where K is the part of a matrix that begins at row and column `at`."""
    for i in range(len(s)):
        k, b, s_i = K[at + i, at:], B[i], s[i]
        for j in range(i):
            b[j] = s_i * s[j] * k[j]
        b[i] = 1.0 + s_i * s_i * k[i]


@jit
def times_vector(K, x, y):
    """y ← K x."""
    N = len(x)
    y[:N] = 0.0
    for i in range(N):
        row, x_i, total = K[i], x[i], 0.0
        for j in range(i):
            total += row[j] * x[j]
            y[j] += row[j] * x_i
        y[i] += total + row[i] * x_i


@jit
def forward(L, n, u, x):
    """x ← L⁻¹ u."""
    for i in range(n):
        row, rest = L[i], u[i]
        for j in range(i):
            rest -= row[j] * x[j]
        x[i] = rest / row[i]


@jit
def backward(L, n, x):
    """x ← L⁻ᵀ x."""
    for i in range(n - 1, -1, -1):
        row = L[i]
        x_i = x[i] / row[i]
        x[i] = x_i
        for j in range(i):
            x[j] -= row[j] * x_i


@jit
def below(L, n, x, y):
    """y ← Y x, for the rows Y that lie below the first n of L, n numbers each."""
    for i in range(n, L.shape[0]):
        row, total = L[i], 0.0
        for j in range(n):
            total += row[j] * x[j]
        y[i - n] = total


@jit
def below_transposed(L, n, x, y):
    """y ← Yᵀ x."""
    y[:n] = 0.0
    for i in range(n, L.shape[0]):
        row, x_i = L[i], x[i - n]
        for j in range(n):
            y[j] += row[j] * x_i


@jit
def _add_four(row, n, a, b, c, d, w, x, y, z):
    for j in range(n):
        row[j] += w * a[j] + x * b[j] + y * c[j] + z * d[j]


@jit_exact
def invert_block(L, at, n):
    """L ← L⁻¹ for its block of n rows at row and column `at`: each row as a sum of those above, four at a time."""
    for i in range(n):
        row, k = L[at + i, at:], 0
        while k + 4 <= i:
            a, b, c, d = L[at + k, at:], L[at + k + 1, at:], L[at + k + 2, at:], L[at + k + 3, at:]
            w, x, y, z = row[k], row[k + 1], row[k + 2], row[k + 3]
            _add_four(row, k, a, b, c, d, w, x, y, z)
            row[k] = w * a[k] + x * b[k] + y * c[k] + z * d[k]
            row[k + 1] = x * b[k + 1] + y * c[k + 1] + z * d[k + 1]
            row[k + 2] = y * c[k + 2] + z * d[k + 2]
            row[k + 3] = z * d[k + 3]
            k += 4
        while k < i:
            a, w = L[at + k, at:], row[k]
            for j in range(k):
                row[j] += w * a[j]
            row[k] = w * a[k]
            k += 1
        w = 1.0 / row[i]
        for j in range(i):
            row[j] *= -w
        row[i] = w


@jit
def _explained(K, s, R, j, column):
    """‖L⁻¹ S k_j‖² for column j of K, with R = L⁻¹: what a row with little information lost."""
    total = 0.0
    for i in range(len(s)):
        column[i] = s[i] * (K[i, j] if i >= j else K[j, i])
        row, product = R[i], 0.0
        for k in range(i + 1):
            product += row[k] * column[k]
        total += product * product
    return total


@jit
def variances(K, h, s, R, v, column):
    """diag Σ by the one of two equal formulas that does not cancel (linalg.py), with R = L⁻¹: 1 − Σ_i R_ij² = 1 − (B⁻¹)_jj."""
    n = len(h)
    v[:n] = 1.0
    for i in range(n):
        row = R[i]
        for j in range(i + 1):
            v[j] -= row[j] * row[j]
    for j in range(n):
        prior = K[j, j]
        if h[j] * prior > 1e-4:
            v[j] = max(v[j] / h[j], 0.0)
        else:
            v[j] = max(prior - _explained(K, s, R, j, column), 0.0)


@jit
def weights_of_pairs(B, s, alpha):
    """B⁻¹ ← ααᵀ − S B⁻¹ S, twice the derivative of logZ in K."""
    for i in range(len(s)):
        row, a_i, s_i = B[i], alpha[i], s[i]
        for j in range(i + 1):
            row[j] = a_i * alpha[j] - s_i * s[j] * row[j]


@jit
def roots(h, s):
    for i in range(len(h)):
        s[i] = sqrt(h[i])
