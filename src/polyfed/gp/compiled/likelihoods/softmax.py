"""likelihoods/logistic_softmax.py, compiled; a datum is its class, and its rows are the classes."""

from __future__ import annotations

from math import exp, expm1, log, log1p

import numpy as np

from polyfed.gp.compiled.jit import callback, jit_exact
from polyfed.gp.compiled.numbers import log_2cosh_half, pg_mean, root_of_square
from polyfed.gp.compiled.pointers import BOUND, SITE


@jit_exact
def _log_epsilon(phi, w):
    """log ε of one class, and c."""
    c = root_of_square(phi, w)
    above = w / max(c - phi, 1e-300) if phi < 0.0 else c + phi
    return -0.5 * above - log1p(exp(-c)), c


@callback(SITE)
def site(labels, n_rows, n, noise, options, m, v, h, r):
    tau, left_over = options[0], options[1]
    logs, roots = np.empty(n_rows), np.empty(n_rows)
    for i in range(n):
        rate = left_over
        for k in range(n_rows):
            j = i * n_rows + k
            logs[k], roots[k] = _log_epsilon(m[j] / tau, v[j] / (tau * tau))
            rate -= expm1(logs[k])
        for k in range(n_rows):
            j = i * n_rows + k
            hot, gamma = (1.0 if k == labels[i] else 0.0), exp(logs[k]) / rate
            h[j] = (hot + gamma) * pg_mean(roots[k]) / (tau * tau)
            r[j] = 0.5 * (hot - gamma) / tau


@callback(BOUND)
def bound(labels, n_rows, n, noise, options, m, v):
    tau, left_over, total = options[0], options[1], 0.0
    for i in range(n):
        rate = left_over
        for k in range(n_rows):
            j = i * n_rows + k
            phi = m[j] / tau
            log_epsilon, c = _log_epsilon(phi, v[j] / (tau * tau))
            rate -= expm1(log_epsilon)
            if k == labels[i]:
                total += 0.5 * phi - log_2cosh_half(c)
        total -= log(rate)
    return total
