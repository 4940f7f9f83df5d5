"""Profiles of kernels (kernels.py) over a row of distances: s(φ₁ d), and Σ weight · φ₁ ∂log s/∂φ₁."""

from __future__ import annotations

from math import sqrt

from polyfed.gp.compiled.jit import callback
from polyfed.gp.compiled.numbers import exp_of_negative
from polyfed.gp.compiled.pointers import PROFILE, SLOPE

LEAST = 1e-30  # of t under a root, as in kernels.py


@callback(PROFILE)
def exponential(d, phi1, n, s):
    factor = -0.5 * phi1
    for i in range(n):
        s[i] = exp_of_negative(factor * d[i])


@callback(SLOPE, sums=True)
def exponential_slope(d, phi1, weights, n):
    total = 0.0
    for i in range(n):
        total += weights[i] * d[i]
    return -0.5 * phi1 * total


@callback(PROFILE)
def rational(d, phi1, n, s):
    for i in range(n):
        s[i] = 1.0 / (1.0 + phi1 * d[i])


@callback(SLOPE, sums=True)
def rational_slope(d, phi1, weights, n):
    total = 0.0
    for i in range(n):
        t = phi1 * d[i]
        total -= weights[i] * (t / (1.0 + t))
    return total


@callback(PROFILE)
def matern32(d, phi1, n, s):
    for i in range(n):
        z = sqrt(max(3.0 * phi1 * d[i], LEAST))
        s[i] = (1.0 + z) * exp_of_negative(-z)


@callback(SLOPE, sums=True)
def matern32_slope(d, phi1, weights, n):
    total = 0.0
    for i in range(n):
        z = sqrt(max(3.0 * phi1 * d[i], LEAST))
        total -= 0.5 * weights[i] * (z * z / (1.0 + z))
    return total


@callback(PROFILE)
def matern52(d, phi1, n, s):
    for i in range(n):
        z = sqrt(max(5.0 * phi1 * d[i], LEAST))
        s[i] = (1.0 + z + z * z / 3.0) * exp_of_negative(-z)


@callback(SLOPE, sums=True)
def matern52_slope(d, phi1, weights, n):
    total = 0.0
    for i in range(n):
        z = sqrt(max(5.0 * phi1 * d[i], LEAST))
        total -= 0.5 * weights[i] * (z * z * (1.0 + z) / (3.0 + 3.0 * z + z * z))
    return total


@callback(PROFILE)
def itself(d, phi1, n, s):
    for i in range(n):
        s[i] = d[i]


@callback(SLOPE)
def flat(d, phi1, weights, n):
    return 0.0


# by the name of a kernel
ADDRESSES = {
    "rbf": (exponential.address, exponential_slope.address),
    "laplace": (exponential.address, exponential_slope.address),
    "cauchy": (rational.address, rational_slope.address),
    "matern32": (matern32.address, matern32_slope.address),
    "matern52": (matern52.address, matern52_slope.address),
    "linear": (itself.address, flat.address),
    "affine": (itself.address, flat.address),
}
