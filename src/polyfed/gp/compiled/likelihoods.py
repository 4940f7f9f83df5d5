"""Compiled forms of likelihoods: site and local bound over the data of one task, to be called by their addresses.

A datum is its y (gp/likelihoods/gaussian.py), or its class, whose rows are the classes (logistic_softmax.py). Of a logistic
likelihood (logistic.py) it is (κ, n, const) where these are known, with R rows alike, and y where they depend on the dispersion
(counts). The last of its options say which local bound; for `gaussian` the nodes and weights of gp/quadrature.py follow:
N_LOGISTIC nodes λ, their weights, N_HERMITE nodes z, their weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, expm1, lgamma, log, log1p, pi, sqrt, tanh

import numpy as np
from torch import Tensor

from polyfed.gp.compiled.jit import callback, jit_exact
from polyfed.gp.compiled.pointers import BOUND, SITE
from polyfed.gp.quadrature import gauss_hermite, logistic_nodes

N_HERMITE = 32
N_LOGISTIC = len(logistic_nodes()[0])
OPTIONS = {
    "polya-gamma": (0.0,),
    "gaussian": (1.0, *(number for part in (*logistic_nodes(), *gauss_hermite(N_HERMITE)) for number in part.tolist())),
}


@dataclass(frozen=True)
class Form:
    """What a likelihood gives to compiled inference.

    `site` and `bound` are addresses of functions of the types pointers.SITE and pointers.BOUND. They see a datum as the numbers
    that `codes` holds of it, and are given the options of the likelihood; power and prior mean are not their business.

    Attributes:
        codes: (data, numbers of each datum), float64.
        options: numbers that are the same for all data.
    """

    site: int
    bound: int
    codes: Tensor
    options: tuple[float, ...] = ()


@callback(SITE)
def gaussian_site(y, n_rows, n, noise, options, m, v, h, r):
    precision = 1.0 / noise
    for i in range(n):
        h[i] = precision
        r[i] = precision * y[i]


@callback(BOUND)
def gaussian_bound(y, n_rows, n, noise, options, m, v):
    total = 0.0
    for i in range(n):
        total += (y[i] - m[i]) ** 2 + v[i]
    return -0.5 * (n * (log(2.0 * pi) + log(noise)) + total / noise)


@callback(SITE)
def student_site(y, n_rows, n, noise, options, m, v, h, r):
    dof = options[0]
    for i in range(n):
        h[i] = (dof + 1.0) / (dof * noise + ((y[i] - m[i]) ** 2 + v[i]))
        r[i] = h[i] * y[i]


@callback(BOUND)
def student_bound(y, n_rows, n, noise, options, m, v):
    dof, constant, total = options[0], options[1], 0.0
    for i in range(n):
        total += log1p(((y[i] - m[i]) ** 2 + v[i]) / (dof * noise))
    return n * (constant - 0.5 * log(noise)) - 0.5 * (dof + 1.0) * total


@jit_exact
def _log_2cosh_half(c):
    return 0.5 * c + log1p(exp(-c))


@jit_exact
def _pg_mean(c):
    if c < 1e-2:
        square = c * c
        return 0.25 - square / 48.0 + square * square / 480.0
    return tanh(0.5 * c) / (2.0 * c)


@jit_exact
def _root_of_square(m, v):
    """c of q(ω) = PG(1, c)."""
    return sqrt(m * m + v)


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
def _trial_average(m, v, options, at):
    """E[log 2cosh(f/2)], or a number above it."""
    if options[at] == 0.0:
        return _log_2cosh_half(_root_of_square(m, v))
    return _expected_softplus(m, v, options, at + 1) - 0.5 * m


@jit_exact
def _trial_site(m, v, options, at):
    """(h, r) of one trial."""
    if options[at] == 0.0:
        return _pg_mean(_root_of_square(m, v)), 0.0
    sigmoid, slope = _expected_slopes(m, v, options, at + 1)
    return slope, 0.5 - sigmoid + slope * m


@callback(SITE)
def logistic_site(codes, n_rows, n, noise, options, m, v, h, r):
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        for j in range(i * n_rows, (i + 1) * n_rows):
            slope, rest = _trial_site(m[j], v[j], options, 0)
            h[j] = trials * slope
            r[j] = kappa + trials * rest


@callback(BOUND)
def logistic_bound(codes, n_rows, n, noise, options, m, v):
    total = 0.0
    for i in range(n):
        kappa, trials = codes[3 * i], codes[3 * i + 1]
        total += codes[3 * i + 2]
        for j in range(i * n_rows, (i + 1) * n_rows):
            total += kappa * m[j] - trials * _trial_average(m[j], v[j], options, 0)
    return total


@callback(SITE)
def counts_site(y, n_rows, n, noise, options, m, v, h, r):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    # A loop for each bound: in one, the compiler fuses other products with sums, and the last bit moves.
    if options[2] == 0.0:
        for i in range(n):
            h[i] = (y[i] + noise) * _pg_mean(_root_of_square(m[i] + shift, v[i]))
            r[i] = 0.5 * (y[i] - noise) - h[i] * shift
        return
    for i in range(n):
        trials = y[i] + noise
        slope, rest = _trial_site(m[i] + shift, v[i], options, 2)
        h[i] = trials * slope
        r[i] = 0.5 * (y[i] - noise) + trials * rest - h[i] * shift


@callback(BOUND)
def counts_bound(y, n_rows, n, noise, options, m, v):
    shift = options[1] - log(noise) if options[0] > 0.0 else 0.0
    total = -n * lgamma(noise)
    for i in range(n):
        f = m[i] + shift
        total += lgamma(y[i] + noise) - lgamma(y[i] + 1.0)
        total += 0.5 * (y[i] - noise) * f - (y[i] + noise) * _trial_average(f, v[i], options, 2)
    return total


@jit_exact
def _log_epsilon(phi, w):
    """log ε of one class, and c."""
    c = _root_of_square(phi, w)
    above = w / max(c - phi, 1e-300) if phi < 0.0 else c + phi
    return -0.5 * above - log1p(exp(-c)), c


@callback(SITE)
def softmax_site(labels, n_rows, n, noise, options, m, v, h, r):
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
            h[j] = (hot + gamma) * _pg_mean(roots[k]) / (tau * tau)
            r[j] = 0.5 * (hot - gamma) / tau


@callback(BOUND)
def softmax_bound(labels, n_rows, n, noise, options, m, v):
    tau, left_over, total = options[0], options[1], 0.0
    for i in range(n):
        rate = left_over
        for k in range(n_rows):
            j = i * n_rows + k
            phi = m[j] / tau
            log_epsilon, c = _log_epsilon(phi, v[j] / (tau * tau))
            rate -= expm1(log_epsilon)
            if k == labels[i]:
                total += 0.5 * phi - _log_2cosh_half(c)
        total -= log(rate)
    return total
