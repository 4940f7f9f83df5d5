"""Many clients, one after the other: covariance, E-step and gradient of each while its matrices are in the cache.

Clients see nothing of each other, so any part of them can be done by any thread, and what is found does not depend on it.
"""

from __future__ import annotations

import numpy as np
from numba import types

from polyfed.gp.compiled.anderson import DEPTH
from polyfed.gp.compiled.covariance import covariance, gradient, inputs_of_rows
from polyfed.gp.compiled.estep import WORK, converge
from polyfed.gp.compiled.jit import entry, jit, jit_exact
from polyfed.gp.compiled.pointers import matrix_in
from polyfed.gp.compiled.posterior import complete, inverse, minus_kl
from polyfed.gp.compiled.shared import covariances, evidence, features, gradient_of_features, known, means
from polyfed.gp.compiled.sites import sites
from polyfed.gp.compiled.triangles import weights_of_pairs

_i, _f = types.intp, types.float64
_i1, _i2 = types.Array(_i, 1, "C"), types.Array(_i, 2, "C")
_f1, _f2, _f3 = (types.Array(_f, n, "C") for n in (1, 2, 3))
SIGNATURE = _i(
    _f1,  # space to work in
    _i, _i,  # the first client, and the one after the last
    _i1, _i1, _i1, _i1, _i2, _f1, _f1, _f1,  # layout
    _f1, _f2,  # noise, mu
    _f, _i, types.boolean,  # tolerance, max_steps, accelerate
    _f3,  # K, if it is given
    _i1, _i, _i1, _i1, _i1, _i1, _i1, _i1, _i2, _f3, _f3, _f2, _f3,  # latents
    _f2, _f2, _f2, _f2, _f2, _f2, _f1, _i2,  # posterior
    types.boolean, _f3, _f3, _f2, _f3,  # gradient
    _i2, _i1, _f2, _f2, _f2,  # shared latents
    types.boolean, _f2, _f2, _f2,  # whether starts are of f; means, evidence
)  # fmt: skip
FAILED, STEPS, CONVERGED = range(3)


@jit
def _lower_of(K, place, out):
    for i in range(len(place)):
        row, k = out[i], K[place[i]]
        for j in range(i + 1):
            row[j] = k[place[j]]


@jit
def _both_triangles(W, place, G):
    """G ← W/2 at the places of rows."""
    for i in range(len(place)):
        row, p = W[i], place[i]
        for j in range(i + 1):
            G[p, place[j]] = G[place[j], p] = 0.5 * row[j]


@jit_exact
def _taken(row, place, out):
    for i in range(len(place)):
        out[i] = row[place[i]]


@jit_exact
def _put(values, place, row):
    for i in range(len(place)):
        row[place[i]] = values[i]


@jit_exact
def _solve_client(c, layout, fit, given, latents, found, by, shared, said, spaces):
    """One client; the arguments are those of `solve_clients`, and the arrays to work in."""
    row_ends, places, n_fixed, part_ends, parts, powers, codes, options, noise, mus = layout
    tolerance, max_steps, accelerate, of_f, wanted = fit
    distances, n_inputs, profiles, slopes, scaled, by_input, firsts, looks, ats, x, a_of, amplitudes, phi1s = latents
    ms, vs, hs, rs, alphas, histories, minus_kls, sent = found
    G, g_a, g_amplitude, g_phi1 = by
    points, starts, Z, triangles, shifts = shared
    known_means, evidence_triangles, evidence_shifts = said
    (
        space_K, space_L, space_K1, space_R1, space_S, space, rows_of, at_of, space_x, space_columns, space_past,
        space_k, space_phi, space_Phi, space_V, space_G, space_C, omega, inner, known_mean, said_of, u, scales, sums,
        point_row, point_weights, here, w, f,
    ) = spaces  # fmt: skip
    B, D, P, from_latents = a_of.shape[1], x.shape[1], starts[-1], len(given) == 0
    place, n = places[row_ends[c] : row_ends[c + 1]], n_fixed[c]
    N = len(place)
    M = N - n
    K, L = matrix_in(space_K, N, N), matrix_in(space_L, N, N)
    K1, R1 = matrix_in(space_K1, M, M), matrix_in(space_R1, M, M)
    layers = B if from_latents else 0
    S, at = space_S[: N * N * layers].reshape(layers, N, N), at_of[:N]
    a, g = rows_of[8 : 8 + B], rows_of[8 + B :]
    by_row, columns = matrix_in(space_x, N, D), matrix_in(space_columns, D, N)
    for b in range(len(distances)):
        here[b] = distances[b] + c * (8 * n_inputs * n_inputs)
    if from_latents:
        _taken(ats[c], place, at)
        for b in range(B):
            _taken(a_of[c, b], place, a[b])
        inputs_of_rows(x[c], at, by_row, columns)
        covariance(
            here, n_inputs, profiles, scaled, firsts, at, by_row, columns, a, amplitudes[c], phi1s[c], S, space, K
        )
    else:
        _lower_of(given[c], place, K)
    m, v, mu, column = rows_of[0, :N], rows_of[1, :N], rows_of[2, :N], rows_of[3, :N]
    _taken(mus[c], place, mu)
    told_of = P > 0 and N > 0
    k, phi, Phi = matrix_in(space_k, N, P), matrix_in(space_phi, N, P), matrix_in(space_Phi, N, P)
    V, by_Phi = matrix_in(space_V, N, P), matrix_in(space_G, N, P)
    own = matrix_in(space_C, N if P > 0 else 0, N)
    if told_of:
        if known(triangles[c], shifts[c], omega, known_mean, w) > 0:
            sent[c, FAILED] = -1
            return
        features(
            points, starts, c, n_inputs, profiles, at, by_row, Z, a, amplitudes[c], phi1s[c], k, phi, Phi,
            point_row, scales, w, f,
        )  # fmt: skip
        means(Phi, known_mean, column)
        covariances(K, Phi, omega, V, own, w, f)
        _put(column, place, known_means[c])
        for i in range(N):
            mu[i] += column[i]
    _taken(ms[c], place, m)
    _taken(vs[c], place, v)
    for i in range(N):
        m[i] = 0.0 if np.isnan(m[i]) else m[i] - mu[i] if of_f else m[i]
        v[i] = K[i, i] if np.isnan(v[i]) else v[i]
    h, r, s, alpha = rows_of[4, :N], rows_of[5, :N], rows_of[6, :N], rows_of[7, :N]
    mine = slice(part_ends[c], part_ends[c + 1])
    failed, steps, half_log_det, converged = converge(
        K, n, parts[mine], powers[mine], codes, options, noise, mu, tolerance, max_steps, accelerate,
        m, v, h, r, s, alpha, L, K1, R1, histories[c], space, space_past, w, f,
    )  # fmt: skip
    sent[c, FAILED], sent[c, STEPS], sent[c, CONVERGED] = failed, steps, converged
    if failed > 0:
        sent[c, FAILED] = 1 + place[failed - 1]
        return
    complete(K, L, R1, h, s, n, v, column, w, f)
    minus_kls[c] = minus_kl(h, v, alpha, m, half_log_det)
    ms[c, :], vs[c, :] = 0.0, 0.0
    _put(m, place, ms[c])
    _put(v, place, vs[c])
    _put(h, place, hs[c])
    _put(r, place, rs[c])
    _put(alpha, place, alphas[c])
    if wanted:
        inverse(L, w)
        weights_of_pairs(L, s, alpha)
        if from_latents:
            gradient(
                here, n_inputs, slopes, scaled, by_input, firsts, looks, at, by_row, columns, a, amplitudes[c], phi1s[c],
                S, L, space, g, g_amplitude[c], g_phi1[c],
            )  # fmt: skip
            if told_of:
                h_now, r_now = space[10, :N], space[11, :N]
                sites(parts[mine], powers[mine], codes, options, noise, mu, m, v, space[9, :N], h_now, r_now)
                for i in range(N):
                    column[i] = r_now[i] - h_now[i] * m[i]  # ∂ℓ/∂m, as sites are derivatives
                gradient_of_features(
                    points, starts, slopes, looks, by_row, Z, a, amplitudes[c], phi1s[c], k, phi, Phi, V, omega,
                    known_mean, L, column, by_Phi, inner, point_row, point_weights, scales, sums,
                    g, g_amplitude[c], g_phi1[c], w, f,
                )  # fmt: skip
                failed = evidence(
                    own, Phi, s, alpha, omega, known_mean, K, by_Phi, said_of, u,
                    evidence_triangles[c], evidence_shifts[c], w, f,
                )  # fmt: skip
                if failed > 0:
                    sent[c, FAILED] = 1 + place[failed - 1]
            for b in range(B):
                _put(g[b], place, g_a[c, b])
        else:
            _both_triangles(L, place, G[c])


@entry(SIGNATURE)
def solve_clients(
    work,
    first, last,
    row_ends, places, n_fixed, part_ends, parts, powers, codes, options,
    noise, mus,
    tolerance, max_steps, accelerate,
    given,
    distances, n_inputs, profiles, slopes, scaled, by_input, firsts, looks, ats, x, a_of, amplitudes, phi1s,
    ms, vs, hs, rs, alphas, histories, minus_kls, sent,
    wanted, G, g_a, g_amplitude, g_phi1,
    points, starts, Z, triangles, shifts,
    of_f, known_means, evidence_triangles, evidence_shifts,
):  # fmt: skip
    """All arrays have the clients in their first dimension and rows where they lie in the stack.

    `given` holds K of each client, or nothing: then it is made of the latents. ms and vs hold where to start, NaN for where the
    prior is. `triangles` and `shifts` hold what each client receives about shared latents (shared.py), if there are any. Where
    `work` is too small nothing is done, and how many numbers it has to hold is returned; else zero.
    """
    largest = others = 0  # rows, and rows whose sites change
    for c in range(first, last):
        largest = max(largest, row_ends[c + 1] - row_ends[c])
        others = max(others, row_ends[c + 1] - row_ends[c] - n_fixed[c])
    B, D, P = a_of.shape[1], x.shape[1], starts[-1]
    size, layers = largest * largest, B if len(given) == 0 else 0
    deep = DEPTH if max_steps > 2 and accelerate else 0  # before the third step there is nothing to extrapolate from
    needed = size * (2 + layers + (P > 0)) + 2 * others * others + largest * (2 * D + 6 * deep + 5 * P)
    if len(work) < needed:
        return needed
    K, work = work[:size], work[size:]
    L, work = work[:size], work[size:]
    S, work = work[: size * layers], work[size * layers :]
    C, work = work[: size * (P > 0)], work[size * (P > 0) :]
    K1, work = work[: others * others], work[others * others :]
    R1, work = work[: others * others], work[others * others :]
    by_row, work = work[: largest * D], work[largest * D :]
    columns, work = work[: largest * D], work[largest * D :]
    past, work = work[: 6 * deep * largest], work[6 * deep * largest :]
    wide = work[: 5 * largest * P].reshape(5, largest * P)
    layout = row_ends, places, n_fixed, part_ends, parts, powers, codes, options, noise, mus
    fit = tolerance, max_steps, accelerate, of_f, wanted
    latents = distances, n_inputs, profiles, slopes, scaled, by_input, firsts, looks, ats, x, a_of, amplitudes, phi1s
    found, by = (ms, vs, hs, rs, alphas, histories, minus_kls, sent), (G, g_a, g_amplitude, g_phi1)
    shared, said = (points, starts, Z, triangles, shifts), (known_means, evidence_triangles, evidence_shifts)
    spaces = (
        K, L, K1, R1, S,
        np.empty((WORK, largest)), np.empty((8 + 2 * B, largest)), np.empty(largest, np.intp),
        by_row, columns, past, wide[0], wide[1], wide[2], wide[3], wide[4], C,
        np.empty((P, P)), np.empty(Z.shape[1] * Z.shape[1]),
        np.empty(P), np.empty(P), np.empty(P), np.empty(D), np.empty(D),
        np.empty(Z.shape[1]), np.empty(Z.shape[1]), np.empty(len(distances), np.intp), np.empty(8, np.int32), np.empty(2),
    )  # fmt: skip
    for c in range(first, last):
        _solve_client(c, layout, fit, given, latents, found, by, shared, said, spaces)
    return 0
