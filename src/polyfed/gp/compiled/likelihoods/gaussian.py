"""likelihoods/gaussian.py, compiled; a datum is its y."""

from __future__ import annotations

from math import log, log1p, pi

from polyfed.gp.compiled.jit import callback
from polyfed.gp.compiled.pointers import BOUND, SITE


@callback(SITE)
def site(y, n_rows, n, noise, options, m, v, h, r):
    precision = 1.0 / noise
    for i in range(n):
        h[i] = precision
        r[i] = precision * y[i]


@callback(BOUND)
def bound(y, n_rows, n, noise, options, m, v):
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
