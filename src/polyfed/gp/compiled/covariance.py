"""The covariance of a client's rows over all latents, K_ij = Σ_b φ₀ a_ib a_jb s_b(d_ij), and its derivative (lmc.py).

Distances over the inputs (metrics.py) are found by address, one matrix for each client and metric.
"""

from __future__ import annotations

from numba import carray

from polyfed.gp.compiled.jit import jit, jit_exact
from polyfed.gp.compiled.pointers import call_profile, call_slope, doubles_at, pointer_to

SMALL = 64  # rows, of which both triangles are done sooner at once than one of them row by row


@jit_exact
def is_in_order(at):
    """Whether row i sits at input i."""
    in_order = True
    for i in range(len(at)):
        in_order = in_order and at[i] == i
    return in_order


@jit_exact
def _taken(d, at, i, out):
    """Row i, up to the diagonal, of a matrix of which the lower triangle over inputs is known."""
    u = at[i]
    for j in range(i + 1):
        out[j] = d[u, at[j]] if at[j] <= u else d[at[j], u]


@jit
def _add(S, a, amplitude, K, first):
    for i in range(K.shape[0]):
        s, k, weight = S[i], K[i], amplitude * a[i]
        if first:
            for j in range(i + 1):
                k[j] = weight * a[j] * s[j]
        else:
            for j in range(i + 1):
                k[j] += weight * a[j] * s[j]


@jit_exact
def covariance(distances, n_inputs, profiles, at, a, amplitude, phi1, S, space, K):
    """Lower triangles of K and of each latent's S, over rows that sit at these inputs; `space` holds a row."""
    B, N = S.shape[0], len(at)
    in_order, row = is_in_order(at), space[0]
    at_once = in_order and n_inputs == N <= SMALL
    for b in range(B):
        d = carray(doubles_at(distances[b]), (n_inputs, n_inputs))
        if at_once:
            call_profile(profiles[b], pointer_to(d, 0), phi1[b], N * N, pointer_to(S, b * N * N))
        for i in range(0 if at_once else N):
            source = pointer_to(d, at[i] * n_inputs)
            if not in_order:
                _taken(d, at, i, row)
                source = pointer_to(row, 0)
            call_profile(profiles[b], source, phi1[b], i + 1, pointer_to(S, (b * N + i) * N))
        _add(S[b], a[b], amplitude[b], K, b == 0)


@jit
def _row_of_gradient(pair_weights, s, a, i, g, products):
    """Adds row i to g = E a, for E = (ααᵀ − SB⁻¹S) ∘ S_b; leaves E_ij a_j for j < i."""
    a_i, total = a[i], 0.0
    for j in range(i):
        e = pair_weights[j] * s[j]
        g[j] += e * a_i
        products[j] = e * a[j]
        total += products[j]
    g[i] += total + pair_weights[i] * s[i] * a_i


@jit_exact
def gradient(distances, n_inputs, slopes, at, a, amplitude, phi1, S, W, space, g_a, g_amplitude, g_phi1):
    """∂logZ/∂(a, φ₀, φ₁), given W = ααᵀ − SB⁻¹S."""
    B, N = S.shape[0], len(at)
    in_order, products, row = is_in_order(at), space[0], space[1]
    for b in range(B):
        d = carray(doubles_at(distances[b]), (n_inputs, n_inputs))
        g, total = g_a[b], 0.0
        g[:N] = 0.0
        for i in range(N):
            _row_of_gradient(W[i], S[b, i], a[b], i, g, products)
            source = pointer_to(d, at[i] * n_inputs)
            if not in_order:
                _taken(d, at, i, row)
                source = pointer_to(row, 0)
            total += a[b, i] * call_slope(slopes[b], source, phi1[b], pointer_to(products, 0), i)
        norm = 0.0
        for i in range(N):
            norm += a[b, i] * g[i]
            g[i] *= amplitude[b]
        g_amplitude[b] = 0.5 * norm
        g_phi1[b] = amplitude[b] * total / phi1[b]
