"""The E-step of one client, step by step as meanfield.infer takes it; see there for what is accepted, dropped and halved."""

from __future__ import annotations

import numpy as np

from polyfed.gp.compiled.anderson import DEPTH, extrapolated, flat, forget
from polyfed.gp.compiled.jit import jit_exact
from polyfed.gp.compiled.pointers import matrix_in
from polyfed.gp.compiled.posterior import eliminate, minus_kl, step
from polyfed.gp.compiled.sites import local_bound, sites
from polyfed.gp.compiled.triangles import copied

MAX_HALVINGS = 30
WORK = 14  # vectors to work in


@jit_exact
def fell(value, bound):
    return not (value >= bound - 1e-10 * (1.0 + abs(bound)))  # a fall within rounding is none; NaN is one


@jit_exact
def _tried(given, data, h, r, m, v, mean):
    """q(f) for these sites, in α, m and v: the failure, ½ log|B| and the bound."""
    K, K1, L, R1, w0, m1, s, n, alpha, u, a1, half, half_log_det0, w, f = given
    failed, half_log_det = step(K, K1, L, R1, w0, m1, h, r, s, n, alpha, m, v, u, a1, half, w, f)
    if failed > 0:
        return failed, 0.0, -np.inf
    half_log_det += half_log_det0
    bound = minus_kl(h, v, alpha, m, half_log_det)
    bound += local_bound(*data, m, v, mean)
    return 0, half_log_det, bound


@jit_exact
def converge(
    K, n, parts, powers, codes, options, noise, mu, tolerance, max_steps, accelerate,
    m, v, h, r, s, alpha, L, K1, R1, history, space, past, w, f,
):  # fmt: skip
    """q(f) of the rows whose prior covariance is K, from the marginals in m and v, which it replaces.

    `space` has WORK rows of at least N numbers, `past` 6 N for each of DEPTH points to extrapolate from, or none. Leaves h, r,
    s, α, the bounds in `history`, and L and R1 as they are taken by `posterior.complete`. Returns the failure (1 + row, 0 for
    none), the number of steps, ½ log|B|, and whether the bound stands still.
    """
    N = len(m)
    w0, half, m1, u, a1 = space[0, :n], space[1, :n], space[2, : N - n], space[3, :N], space[4, :N]
    at_m, at_v, new_m, new_v, mean = space[5, :N], space[6, :N], space[7, :N], space[8, :N], space[9, :N]
    h_plain, r_plain, h_try, r_try = space[10, :N], space[11, :N], space[12, :N], space[13, :N]
    copied(m, at_m)
    copied(v, at_v)
    data = parts, powers, codes, options, noise, mu
    sites(*data, at_m, at_v, mean, h, r)
    failed, half_log_det0 = eliminate(K, h, r, s, n, L, K1, w0, m1, half, w, f)
    if failed > 0:
        return failed, 0, 0.0, False
    given = K, K1, L, R1, w0, m1, s, n, alpha, u, a1, half, half_log_det0, w, f
    failed, half_log_det, bound = _tried(given, data, h, r, m, v, mean)
    if failed > 0:
        return failed, 0, 0.0, False
    history[0] = bound
    steps, k, resting, converged = 1, 0, False, N == 0
    deep = min(len(past), DEPTH)
    each = 2 * N * deep
    points = matrix_in(past, deep, 2 * N)
    images = matrix_in(past[each:], deep, 2 * N)
    differences = matrix_in(past[2 * each :], deep, 2 * N)
    while not converged and steps < max_steps:
        sites(*data, m, v, mean, h_plain, r_plain)
        same = True
        for i in range(N):
            same = same and h_plain[i] == h[i] and r_plain[i] == r[i]
        if same:
            converged = True
            break
        further = False
        if deep > 0:
            if k == DEPTH:
                for i in range(1, k):
                    copied(points[i], points[i - 1])
                    copied(images[i], images[i - 1])
                k -= 1
            flat(at_m, at_v, points[k])
            flat(m, v, images[k])
            k += 1
            copied(m, at_m)
            copied(v, at_v)
            if k > 1:
                if not resting:
                    further = extrapolated(points, images, k, differences, at_m, at_v)
                resting = False
        if further:
            sites(*data, at_m, at_v, mean, h_try, r_try)
        else:
            copied(h_plain, h_try)
            copied(r_plain, r_try)
        failed, half_log_det, value = _tried(given, data, h_try, r_try, new_m, new_v, mean)
        if failed > 0 and not further:  # an extrapolation may go anywhere; a plain step that breaks down is an error
            return failed, steps, 0.0, False
        if failed > 0 or fell(value, bound) or (further and value < bound):
            if deep > 0:
                forget(points, images, k)
                k = 1
                copied(m, at_m)
                copied(v, at_v)
            resting, further, share = True, False, 1.0
            for halving in range(MAX_HALVINGS + 1):
                if halving < MAX_HALVINGS:
                    for i in range(N):
                        h_try[i] = h[i] + share * (h_plain[i] - h[i])
                        r_try[i] = r[i] + share * (r_plain[i] - r[i])
                else:
                    copied(h, h_try)  # not a step to be had: stay
                    copied(r, r_try)
                failed, half_log_det, value = _tried(given, data, h_try, r_try, new_m, new_v, mean)
                if failed > 0:
                    return failed, steps, 0.0, False
                if not fell(value, bound):
                    break
                share *= 0.5
        copied(h_try, h)
        copied(r_try, r)
        copied(new_m, m)
        copied(new_v, v)
        history[steps] = value
        steps += 1
        if value - bound < tolerance + 1e-15 * abs(bound):  # what rounding can show
            converged = not further
            resting = True
            if k > 0:
                forget(points, images, k)
                k = 1
        bound = value
    return 0, steps, half_log_det, converged
