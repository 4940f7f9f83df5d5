"""Profiles of kernels (kernels.py) over a row of distances: s(t) at t = φ₁ d, and weights times s'(t)/s(t)."""

from __future__ import annotations

from math import sqrt

from polyfed.gp import kernels
from polyfed.gp.compiled.jit import callback, jit_exact
from polyfed.gp.compiled.pointers import PROFILE, SLOPE, as_bits, as_float

LEAST = 1e-30  # of t under a root, as in kernels.py
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is log 2; the first ends in zeros
ROUND = 6755399441055744.0  # 1.5 · 2⁵²: a number added to it is rounded to an integer, in its last bits


@jit_exact
def exp_of_negative(x):
    """eˣ for x ≤ 0, without a branch: 2ᵏ eᵗ with |t| ≤ ½ log 2, and eᵗ by its series up to t¹³; zero below −708."""
    x = max(x, -708.0)
    shifted = x * LOG2_E + ROUND
    k = shifted - ROUND
    t = (x - k * LN2_HIGH) - k * LN2_LOW
    p = 1.6059043836821613e-10
    p = p * t + 2.0876756987868099e-09
    p = p * t + 2.5052108385441719e-08
    p = p * t + 2.7557319223985891e-07
    p = p * t + 2.7557319223985893e-06
    p = p * t + 2.4801587301587302e-05
    p = p * t + 1.9841269841269841e-04
    p = p * t + 1.3888888888888889e-03
    p = p * t + 8.3333333333333333e-03
    p = p * t + 4.1666666666666667e-02
    p = p * t + 1.6666666666666667e-01
    p = p * t + 0.5
    p = p * t + 1.0
    p = p * t + 1.0
    return p * as_float((as_bits(shifted) + 1023) << 52)


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
