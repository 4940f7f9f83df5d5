"""Functions of one number that loops use: the exponential in a form that is done several numbers at a time, and the parts of
logistic likelihoods (likelihoods/logistic.py)."""

from __future__ import annotations

from math import exp, log1p, sqrt, tanh

from polyfed.gp.compiled.jit import jit_exact
from polyfed.gp.compiled.pointers import as_bits, as_float

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


@jit_exact
def log_2cosh_half(c):
    return 0.5 * c + log1p(exp(-c))


@jit_exact
def pg_mean(c):
    if c < 1e-2:
        square = c * c
        return 0.25 - square / 48.0 + square * square / 480.0
    return tanh(0.5 * c) / (2.0 * c)


@jit_exact
def root_of_square(m, v):
    """c of q(ω) = PG(1, c)."""
    return sqrt(m * m + v)
