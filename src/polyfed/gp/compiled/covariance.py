"""The covariance of a client's rows over all latents, K_ij = Σ_b φ₀ a_ib a_jb s_b(t_ij), and its derivative (lmc.py).

Where a latent has one φ₁ for all inputs, t is φ₁ times a distance that no parameter changes: distances over the inputs
(metrics.py) are found by address, one matrix for each client and metric. Where it has one for each input, t is made of the
inputs whenever it is needed. Latents that are the same function of the inputs (planes) share one matrix S: that of the first.
"""

from __future__ import annotations

from polyfed.gp.compiled.jit import jit, jit_exact
from polyfed.gp.compiled.pointers import call_by_input, call_profile, call_scaled, call_slope, matrix_at, pointer_to
from polyfed.gp.compiled.triangles import dot

SMALL = 64  # rows, of which both triangles are done sooner at once than one of them row by row


@jit_exact
def is_in_order(at):
    """Whether row i sits at input i."""
    in_order = True
    for i in range(len(at)):
        in_order = in_order and at[i] == i
    return in_order


@jit_exact
def inputs_of_rows(x, at, by_row, columns):
    """The inputs (D, U) of the rows, one row after the other and one dimension after the other."""
    for k in range(x.shape[0]):
        of_inputs = x[k]
        for i in range(len(at)):
            columns[k, i] = by_row[i, k] = of_inputs[at[i]]


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
def covariance(
    distances, n_inputs, profiles, scaled, firsts, at, by_row, columns, a, amplitude, phi1, S, space, K
):  # fmt: skip
    """Lower triangles of K and of each latent's S, over rows that sit at these inputs; `space` holds a row.

    `distances` has the address of those of this client for each latent, or `scaled` that of what makes t.
    """
    B, N, D = S.shape[0], len(at), phi1.shape[1]
    in_order, row = is_in_order(at), space[0]
    for b in range(B):
        if firsts[b] == b and scaled[b] != 0:
            for i in range(N):
                call_scaled(
                    scaled[b], pointer_to(by_row, i * D), pointer_to(columns, 0), N, D, pointer_to(phi1, b * D), i + 1,
                    pointer_to(row, 0),
                )  # fmt: skip
                call_profile(profiles[b], pointer_to(row, 0), 1.0, i + 1, pointer_to(S, (b * N + i) * N))
        elif firsts[b] == b:
            d = matrix_at(distances[b], n_inputs, n_inputs)
            at_once = in_order and n_inputs == N <= SMALL
            if at_once:
                call_profile(profiles[b], pointer_to(d, 0), phi1[b, 0], N * N, pointer_to(S, b * N * N))
            for i in range(0 if at_once else N):
                source = pointer_to(d, at[i] * n_inputs)
                if not in_order:
                    _taken(d, at, i, row)
                    source = pointer_to(row, 0)
                call_profile(profiles[b], source, phi1[b, 0], i + 1, pointer_to(S, (b * N + i) * N))
        _add(S[firsts[b]], a[b], amplitude[b], K, b == 0)


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
def gradient(
    distances, n_inputs, slopes, scaled, by_input, firsts, looks, at, by_row, columns, a, amplitude, phi1, S, W, space,
    g_a, g_amplitude, g_phi1,
):  # fmt: skip
    """∂logZ/∂(a, φ₀, φ₁), given W = ααᵀ − SB⁻¹S. `looks` says whose slope looks at t, which is made again for it."""
    B, N, D = S.shape[0], len(at), phi1.shape[1]
    in_order, products, row = is_in_order(at), space[0], space[1]
    for b in range(B):
        g, of_b = g_a[b], S[firsts[b]]
        g[:N], g_phi1[b, :] = 0.0, 0.0
        for i in range(N):
            _row_of_gradient(W[i], of_b[i], a[b], i, g, products)
            if slopes[b] == 0 or i == 0:
                continue
            x, others = pointer_to(by_row, i * D), pointer_to(columns, 0)
            if scaled[b] != 0:
                if looks[b] != 0:
                    call_scaled(scaled[b], x, others, N, D, pointer_to(phi1, b * D), i, pointer_to(row, 0))
                call_slope(slopes[b], pointer_to(row, 0), 1.0, i, pointer_to(products, 0))
                call_by_input(
                    by_input[b], x, others, N, D, pointer_to(products, 0), a[b, i], i, pointer_to(g_phi1, b * D)
                )
            else:
                d = matrix_at(distances[b], n_inputs, n_inputs)
                source = d[at[i]]
                if not in_order:
                    _taken(d, at, i, row)
                    source = row
                call_slope(slopes[b], pointer_to(source, 0), phi1[b, 0], i, pointer_to(products, 0))
                g_phi1[b, 0] += a[b, i] * dot(products, source, i)
        norm = 0.0
        for i in range(N):
            norm += a[b, i] * g[i]
            g[i] *= amplitude[b]
        g_amplitude[b] = 0.5 * norm
        for k in range(D):
            g_phi1[b, k] *= amplitude[b]
