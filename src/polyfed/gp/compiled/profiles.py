"""Profiles of kernels (kernels.py) over a row of distances: s(t) at t = φ₁ d, and weights times s'(t)/s(t)."""

from __future__ import annotations

from math import sqrt

from polyfed.gp import kernels
from polyfed.gp.compiled.jit import callback
from polyfed.gp.compiled.numbers import exp_of_negative
from polyfed.gp.compiled.pointers import PROFILE, SLOPE

LEAST = 1e-30  # of t under a root, as in kernels.py


@callback(PROFILE)
def exponential(d, phi1, n, s):
    factor = -0.5 * phi1
    for i in range(n):
        s[i] = exp_of_negative(factor * d[i])


@callback(SLOPE)
def exponential_slope(d, phi1, n, weights):
    for i in range(n):
        weights[i] *= -0.5


@callback(PROFILE)
def rational(d, phi1, n, s):
    for i in range(n):
        s[i] = 1.0 / (1.0 + phi1 * d[i])


@callback(SLOPE)
def rational_slope(d, phi1, n, weights):
    for i in range(n):
        weights[i] *= -1.0 / (1.0 + phi1 * d[i])


@callback(PROFILE)
def matern32(d, phi1, n, s):
    for i in range(n):
        z = sqrt(max(3.0 * phi1 * d[i], LEAST))
        s[i] = (1.0 + z) * exp_of_negative(-z)


@callback(SLOPE)
def matern32_slope(d, phi1, n, weights):
    for i in range(n):
        z = sqrt(max(3.0 * phi1 * d[i], LEAST))
        weights[i] *= -1.5 / (1.0 + z)


@callback(PROFILE)
def matern52(d, phi1, n, s):
    for i in range(n):
        z = sqrt(max(5.0 * phi1 * d[i], LEAST))
        s[i] = (1.0 + z + z * z / 3.0) * exp_of_negative(-z)


@callback(SLOPE)
def matern52_slope(d, phi1, n, weights):
    for i in range(n):
        z = sqrt(max(5.0 * phi1 * d[i], LEAST))
        weights[i] *= -2.5 * (1.0 + z) / (3.0 + 3.0 * z + z * z)


@callback(PROFILE)
def itself(d, phi1, n, s):
    for i in range(n):
        s[i] = d[i]


EXPONENTIAL = exponential.address, exponential_slope.address  # whose slope is the same for all t

# by the profile of a kernel; no slope where there is no length-scale
ADDRESSES = {
    kernels.rbf.profile: EXPONENTIAL,
    kernels.cauchy.profile: (rational.address, rational_slope.address),
    kernels.matern32.profile: (matern32.address, matern32_slope.address),
    kernels.matern52.profile: (matern52.address, matern52_slope.address),
    kernels.linear.profile: (itself.address, 0),
}
