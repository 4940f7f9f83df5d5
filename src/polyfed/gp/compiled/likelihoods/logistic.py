"""likelihoods/logistic.py, compiled, with the bound of Pólya and Gamma.

A datum is (κ, n, const) where these are known, with R rows alike; it is y where they depend on the dispersion (counts).
"""

from __future__ import annotations

from math import lgamma, log

from polyfed.gp.compiled.jit import callback
from polyfed.gp.compiled.numbers import log_2cosh_half, pg_mean, root_of_square
from polyfed.gp.compiled.pointers import BOUND, SITE


@callback(SITE)
def site(codes, n_rows, n, noise, options, m, v, h, r):
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        for j in range(i * n_rows, (i + 1) * n_rows):
            h[j] = trials * pg_mean(root_of_square(m[j], v[j]))
            r[j] = kappa


@callback(BOUND)
def bound(codes, n_rows, n, noise, options, m, v):
    total = 0.0
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        total += codes[3 * i + 2]
        for j in range(i * n_rows, (i + 1) * n_rows):
            total += kappa * m[j] - trials * log_2cosh_half(root_of_square(m[j], v[j]))
    return total


@callback(SITE)
def counts_site(y, n_rows, n, noise, options, m, v, h, r):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    for i in range(n):
        h[i] = (y[i] + noise) * pg_mean(root_of_square(m[i] + shift, v[i]))
        r[i] = 0.5 * (y[i] - noise) - h[i] * shift


@callback(BOUND)
def counts_bound(y, n_rows, n, noise, options, m, v):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    total = -n * lgamma(noise)
    for i in range(n):
        f = m[i] + shift
        total += lgamma(y[i] + noise) - lgamma(y[i] + 1.0)
        total += 0.5 * (y[i] - noise) * f - (y[i] + noise) * log_2cosh_half(root_of_square(f, v[i]))
    return total
