"""likelihoods/logistic.py, compiled: κ f − n log 2cosh(f/2) + const.

A datum is (κ, n, const) where these are known, with R rows alike; it is y where they depend on the dispersion (counts). The
last options say which local bound; for `gaussian` the nodes and weights of gp/quadrature.py follow: N_LOGISTIC nodes λ, their
weights, N_HERMITE nodes z, their weights.
"""

from __future__ import annotations

from math import erfc, exp, lgamma, log, log1p, pi, sqrt

from polyfed.gp.compiled.jit import callback, jit_exact
from polyfed.gp.compiled.numbers import log_2cosh_half, pg_mean, root_of_square
from polyfed.gp.compiled.pointers import BOUND, SITE
from polyfed.gp.quadrature import gauss_hermite, logistic_nodes

N_HERMITE = 32
N_LOGISTIC = len(logistic_nodes()[0])
OPTIONS = {
    "polya-gamma": (0.0,),
    "gaussian": (1.0, *(number for part in (*logistic_nodes(), *gauss_hermite(N_HERMITE)) for number in part.tolist())),
}


@jit_exact
def _expected_softplus(m, v, options, at):
    s, total = sqrt(max(v, 0.0)), 0.0
    if s >= 1.0:
        for k in range(N_LOGISTIC):
            t = (m - options[at + k]) / s
            density, tail = exp(-0.5 * t * t) / (s * sqrt(2.0 * pi)), 0.5 * erfc(-t / sqrt(2.0))
            total += options[at + N_LOGISTIC + k] * s * (t * tail + s * density)
        return total
    at += 2 * N_LOGISTIC
    for k in range(N_HERMITE):
        f = m + s * options[at + k]
        total += options[at + N_HERMITE + k] * (max(f, 0.0) + log1p(exp(-abs(f))))
    return total


@jit_exact
def _expected_slopes(m, v, options, at):
    """E[sigmoid(f)] and E[sigmoid'(f)]."""
    s, sigmoid, slope = sqrt(max(v, 0.0)), 0.0, 0.0
    if s >= 1.0:
        for k in range(N_LOGISTIC):
            t, weight = (m - options[at + k]) / s, options[at + N_LOGISTIC + k]
            slope += weight * (exp(-0.5 * t * t) / (s * sqrt(2.0 * pi)))
            sigmoid += weight * (0.5 * erfc(-t / sqrt(2.0)))
        return sigmoid, slope
    at += 2 * N_LOGISTIC
    for k in range(N_HERMITE):
        f, weight = m + s * options[at + k], options[at + N_HERMITE + k]
        small = exp(-abs(f))
        upper, lower = 1.0 / (1.0 + small), small / (1.0 + small)
        sigmoid += weight * (upper if f >= 0.0 else lower)
        slope += weight * upper * lower
    return sigmoid, slope


@jit_exact
def _average(m, v, options, at):
    """E[log 2cosh(f/2)], or a number above it."""
    if options[at] == 0.0:
        return log_2cosh_half(root_of_square(m, v))
    return _expected_softplus(m, v, options, at + 1) - 0.5 * m


@jit_exact
def _site(m, v, options, at):
    """(h, r) of one trial."""
    if options[at] == 0.0:
        return pg_mean(root_of_square(m, v)), 0.0
    sigmoid, slope = _expected_slopes(m, v, options, at + 1)
    return slope, 0.5 - sigmoid + slope * m


@callback(SITE)
def site(codes, n_rows, n, noise, options, m, v, h, r):
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        for j in range(i * n_rows, (i + 1) * n_rows):
            slope, rest = _site(m[j], v[j], options, 0)
            h[j] = trials * slope
            r[j] = kappa + trials * rest


@callback(BOUND)
def bound(codes, n_rows, n, noise, options, m, v):
    total = 0.0
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        total += codes[3 * i + 2]
        for j in range(i * n_rows, (i + 1) * n_rows):
            total += kappa * m[j] - trials * _average(m[j], v[j], options, 0)
    return total


@callback(SITE)
def counts_site(y, n_rows, n, noise, options, m, v, h, r):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    if options[2] == 0.0:
        for i in range(n):
            h[i] = (y[i] + noise) * pg_mean(root_of_square(m[i] + shift, v[i]))
            r[i] = 0.5 * (y[i] - noise) - h[i] * shift
        return
    for i in range(n):
        trials = y[i] + noise
        slope, rest = _site(m[i] + shift, v[i], options, 2)
        h[i] = trials * slope
        r[i] = 0.5 * (y[i] - noise) + trials * rest - h[i] * shift


@callback(BOUND)
def counts_bound(y, n_rows, n, noise, options, m, v):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    total = -n * lgamma(noise)
    for i in range(n):
        f = m[i] + shift
        total += lgamma(y[i] + noise) - lgamma(y[i] + 1.0)
        total += 0.5 * (y[i] - noise) * f - (y[i] + noise) * _average(f, v[i], options, 2)
    return total
