"""What a client receives about shared latents, and what its rows say of them (knowledge.py, whitened.py).

Φ (N, P) holds the features of all shared latents side by side, c_b φ_b with c_b = a_b √φ₀; L is the factor of Ω. `points` has a
line for each kind of address, and a column for each shared latent: the features of all inputs where they are known (planes),
else L_b⁻¹ of k(Z, Z), the derivatives of that in each φ₁ (D matrices), and what makes t and its derivative of scaled inputs.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import types

from polyfed.gp.compiled.jit import entry, jit, jit_exact
from polyfed.gp.compiled.lapack import (
    add_outer,
    columns_solved,
    gram,
    products_of_columns,
    rows_solved,
    rows_solved_back,
    symmetric_times,
    times_right,
    times_right_transposed,
)
from polyfed.gp.compiled.pointers import call_by_input, call_profile, call_scaled, call_slope, matrix_at, pointer_to
from polyfed.gp.compiled.posterior import factored
from polyfed.gp.compiled.triangles import backward, copied, forward, one_plus_scaled, times_vector

GIVEN, ROOT, BY_PHI1, SCALED, BY_INPUT = range(5)


@jit
def unpacked(triangle, A):
    """The lower triangle of A ← a triangle; its largest entry."""
    at, largest = 0, 0.0
    for i in range(A.shape[0]):
        row, packed = A[i], triangle[at : at + i + 1]
        for j in range(i + 1):
            row[j] = packed[j]
            largest = max(largest, abs(packed[j]))
        at += i + 1
    return largest


@jit_exact
def known(triangle, shift, L, mean, w):
    """The factor of Ω = I + Λ and Ω⁻¹η; the failure, 0 for none."""
    P = len(shift)
    unpacked(triangle, L)
    for i in range(P):
        L[i, i] += 1.0
    failed, _ = factored(L, P, P, w)
    if failed == 0:
        forward(L, P, shift, mean)
        backward(L, P, mean)
    return failed


@entry(types.void(types.Array(types.float64, 2, "C"), types.float64, types.Array(types.boolean, 1, "C")))
def positive(triangles, rounding, found):
    """Whether each is the triangle of a positive semi-definite matrix, but for so much of one and of its largest entry."""
    P = int(sqrt(2.0 * triangles.shape[1]))
    A, w = np.empty((P, P)), np.empty(8, np.int32)
    for c in range(len(triangles)):
        largest = unpacked(triangles[c], A)
        for i in range(P):
            A[i, i] += rounding * (1.0 + largest)
        found[c] = factored(A, P, P, w)[0] == 0


@jit_exact
def features(
    points, starts, client, n_inputs, profiles, at, by_row, Z, a, amplitude, phi1, k, phi, Phi, row, scales, w, f
):
    """φ of each row, Φ, and the k(Z, x) that they were made of."""
    N, P, D, M = len(at), phi.shape[1], by_row.shape[1], Z.shape[1]
    for b in range(len(starts) - 1):
        start, end = starts[b], starts[b + 1]
        if points[GIVEN, b] != 0:
            place = points[GIVEN, b] + client * (8 * n_inputs * (end - start))
            given = matrix_at(place, n_inputs, end - start)
            for i in range(N):
                copied(given[at[i]], phi[i, start:end])
        else:
            for d in range(D):
                scales[d] = phi1[b, d if phi1.shape[1] > 1 else 0]
            for i in range(N):
                call_scaled(
                    points[SCALED, b], pointer_to(by_row, i * D), pointer_to(Z, 0), M, D, pointer_to(scales, 0), M,
                    pointer_to(row, 0),
                )  # fmt: skip
                call_profile(profiles[b], pointer_to(row, 0), 1.0, M, pointer_to(k, i * P + start))
                copied(k[i, start:end], phi[i, start:end])
            R = matrix_at(points[ROOT, b], M, M)
            times_right_transposed(R, phi, start, P, N, M, w, f)
        root = sqrt(amplitude[b])
        for i in range(N):
            c, of_row, weighted = root * a[b, i], phi[i], Phi[i]
            for p in range(start, end):
                weighted[p] = c * of_row[p]


@jit
def means(Phi, mean, out):
    for i in range(Phi.shape[0]):
        row, total = Phi[i], 0.0
        for p in range(len(mean)):
            total += row[p] * mean[p]
        out[i] = total


@jit_exact
def covariances(K, Phi, L, V, C, w, f):
    """C ← K − ΦΦᵀ, K ← C + ΦΩ⁻¹Φᵀ, V ← ΦL⁻ᵀ."""
    N, P = Phi.shape
    add_outer(-1.0, K, 0, N, Phi, 0, P, N, P, w, f)
    for i in range(N):
        copied(K[i, : i + 1], C[i])
        copied(Phi[i], V[i])
    rows_solved(L, 0, P, V, 0, P, N, P, w, f)
    add_outer(1.0, K, 0, N, V, 0, P, N, P, w, f)


@jit
def _dot(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@jit
def _less(Phi, V):
    """V ← Φ − V."""
    for i in range(V.shape[0]):
        row, of_row = V[i], Phi[i]
        for p in range(V.shape[1]):
            row[p] = of_row[p] - row[p]


@jit
def _by_mean(g, mean, G):
    for i in range(len(g)):
        row, g_i = G[i], g[i]
        for p in range(len(mean)):
            row[p] += g_i * mean[p]


@jit_exact
def gradient_of_features(
    points, starts, slopes, looks, by_row, Z, a, amplitude, phi1, k, phi, Phi, V, L, mean, W, of_mean, G, inner, row, weights,
    scales, sums, g_a, g_amplitude, g_phi1, w, f,
):  # fmt: skip
    """Adds what Φ has of ∂logZ/∂(a, φ₀, φ₁), given W = ααᵀ − SB⁻¹S and the derivative in the rows' means.

    ∂/∂Φ = −W Φ(I − Ω⁻¹) + ∂/∂mean μᵀ. Leaves that in G, and Φ(I − Ω⁻¹) in V.
    """
    (N, P), D, M = Phi.shape, by_row.shape[1], Z.shape[1]
    rows_solved_back(L, V, N, P, w, f)
    _less(Phi, V)
    symmetric_times(-1.0, W, V, N, P, G, w, f)
    _by_mean(of_mean, mean, G)
    for b in range(len(starts) - 1):
        start, end, root, total = starts[b], starts[b + 1], sqrt(amplitude[b]), 0.0
        for i in range(N):
            by_weight = _dot(G[i, start:end], phi[i, start:end])
            g_a[b, i] += root * by_weight
            total += a[b, i] * by_weight
        g_amplitude[b] += 0.5 * total / root
        if points[GIVEN, b] != 0:
            continue
        products_of_columns(G, Phi, start, P, N, M, inner, w, f)
        R = matrix_at(points[ROOT, b], M, M)
        times_right(1.0, R, 0, M, G, start, P, N, M, w, f)
        of_root = matrix_at(points[BY_PHI1, b], D, M * M)
        for d in range(D):
            sums[d] = -_dot(inner, of_root[d])
            scales[d] = phi1[b, d if phi1.shape[1] > 1 else 0]
        for i in range(N):
            for m in range(M):
                weights[m] = G[i, start + m] * k[i, start + m]
            x = pointer_to(by_row, i * D)
            if looks[b] != 0:
                call_scaled(points[SCALED, b], x, pointer_to(Z, 0), M, D, pointer_to(scales, 0), M, pointer_to(row, 0))
            call_slope(slopes[b], pointer_to(row, 0), 1.0, M, pointer_to(weights, 0))
            call_by_input(
                points[BY_INPUT, b], x, pointer_to(Z, 0), M, D, pointer_to(weights, 0), root * a[b, i], M,
                pointer_to(sums, 0),
            )  # fmt: skip
        for d in range(D):
            g_phi1[b, d if phi1.shape[1] > 1 else 0] += sums[d]


@jit
def _sum_of_rows(A, x, out):
    """out ← Aᵀx."""
    out[:] = 0.0
    for i in range(len(x)):
        row, x_i = A[i], x[i]
        for p in range(len(out)):
            out[p] += row[p] * x_i


@jit_exact
def evidence(C, Phi, s, alpha, L, mean, B, V, said, u, triangle, shift, w, f):
    """Λ as its triangle, and η, of the rows (knowledge.Informed.evidence); the failure, 0 for none. Λ replaces L."""
    N, P = Phi.shape
    one_plus_scaled(C, 0, s, B)
    failed, _ = factored(B, N, N, w)
    if failed > 0:
        return failed
    for i in range(N):
        row, of_row, s_i = V[i], Phi[i], s[i]
        for p in range(P):
            row[p] = s_i * of_row[p]
    columns_solved(B, V, N, P, w, f)
    _sum_of_rows(Phi, alpha, said)
    forward(L, P, said, u)
    backward(L, P, u)
    for p in range(P):
        u[p] += mean[p]
    gram(V, N, P, L, w, f)
    times_vector(L, u, shift)
    at = 0
    for p in range(P):
        shift[p] += said[p]
        row = L[p]
        for q in range(p + 1):
            triangle[at + q] = row[q]
        at += p + 1
    return 0
