"""The numerics behind predictive log densities: noise averaged over a Gaussian latent, in logarithms throughout.

Quadratures. Trapezoids of smooth functions that vanish at both ends, like those of the quantiles; but a density far
out in a tail has its mass where no fixed rule looks, so that each row gets limits of its own. For a latent sd up
to 400 and degrees of freedom from 0.1 to 1e4, the error is below 1e-6 in the logarithm, however improbable the label.

>>> one_of_two = log_binomial_average(np.array([1.0]), np.array([1.0]), np.zeros(1), np.zeros(1))
>>> np.exp(one_of_two).round(12)
array([0.5])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

import numpy as np
from scipy import special

_LOG_2PI = np.log(2 * np.pi)
_DROP = 36.0  # an integrand e^36 below its peak adds nothing to a double
_LEFT_OUT = 1e-13  # probability beyond the outermost nodes
_MOST_NODES = 4001  # so that no row takes all the memory; a latent sd above 400 would like more
_AT_ONCE = 2**17  # numbers held at once, few enough for a processor's cache


def log_normal(r: np.ndarray, std: np.ndarray) -> np.ndarray:
    """log N(r | 0, std²); finite always, because a std of 0 is taken as 1e-150."""
    std = np.maximum(std, 1e-150)
    return -0.5 * np.clip(r / std, -1e150, 1e150) ** 2 - np.log(std) - 0.5 * _LOG_2PI


def _where_known(average: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The same average, with NaN in the rows where an argument is not finite: a diverged model spoils no others."""

    @wraps(average)
    def guarded(*columns: np.ndarray) -> np.ndarray:
        known = np.logical_and.reduce([np.isfinite(column) for column in columns])
        density = np.full(len(known), np.nan)
        density[known] = average(*(column[known] for column in columns))
        return density

    return guarded


def log_student_average(r: np.ndarray, s: np.ndarray, scale: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """The log density of f + scale * t at r, where f ~ N(0, s²) and t is Student-t.

    Student-t noise is normal noise of variance scale² / tau with tau ~ Gamma(a, a), a = dof/2, so this is an
    average of normal densities over u = log tau.
    """
    return _over_log_precision(r, s, scale, np.clip(dof / 2, 1e-3, 1e12))  # beyond, normal to 1e-6 even 37 sd out


@_where_known
def _over_log_precision(r: np.ndarray, s: np.ndarray, scale: np.ndarray, a: np.ndarray) -> np.ndarray:
    density = log_normal(r, s)  # what it is without noise
    unit = np.maximum(np.hypot(s, scale), 1e-150)
    with np.errstate(divide="ignore"):  # no noise at all: those rows are left as they are
        pull = 2 * (np.log(np.maximum(np.abs(r), 1e-150 * unit)) - np.log(scale)) - np.log(2)  # log(r² / 2 scale²)
    # The integrand falls at least as fast as Gamma(a, a + r² / 2 scale²) below all its modes, as Gamma(a + ½, a) above.
    each, of_row = np.unique(a, return_inverse=True)  # few, as a rule: the dof belongs to the task
    low = _log_gamma_bottom(each)[of_row] - np.logaddexp(np.log(a), pull)
    high = np.log(special.gammainccinv(each + 0.5, _LEFT_OUT) / each)[of_row]
    low = np.maximum(low, -1400.0)  # beyond this e^(-u/2) is no double
    step = np.minimum(0.3, 0.5 / np.sqrt(a + 0.5))
    r, s, scale = np.clip(r / unit, -1e150, 1e150), s / unit, scale / unit
    constant = np.log(a) - _log_stirling(a) - 0.5 * _LOG_2PI - np.log(unit)

    def log_integrand(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        variance = s[rows, None] ** 2 + (scale[rows, None] * np.exp(-u / 2)) ** 2
        misfit = (r[rows, None] / np.sqrt(variance)) ** 2 + np.log(variance)
        return a[rows, None] * (u - np.expm1(u)) - 0.5 * misfit

    for rows, n_nodes in _alike((high - low) / step, scale > 0):
        density[rows] = constant[rows] + _log_trapezoid(log_integrand, rows, low[rows], high[rows], n_nodes)
    return density


@_where_known
def log_binomial_average(k: np.ndarray, rest: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """log E[C(n, k) p^k (1-p)^rest] with n = k + rest, p = sigmoid(f) and f ~ N(m, s²); neither need be whole.

    The integrand is log-concave. From its mode f0 and its width w there, it falls by
    n [log(1 + p0 (e^d - 1)) - p0 d] + d² / 2s² at f0 + d, which stays exact where n is huge or s is 0.
    """
    n = k + rest
    # Successes and failures change places where the mode is above 0, so that p0 <= 1/2 and never rounds to 1.
    mirrored = s**2 * (k - n / 2) + m > 0
    k, rest, m = np.where(mirrored, rest, k), np.where(mirrored, k, rest), np.where(mirrored, -m, m)
    f0 = _mode(k, n, m, s)
    p0 = special.expit(f0)
    information = s**2 * n * p0 * (1 - p0)
    share = 1 / (1 + information)  # of the prior in the curvature at the mode
    w = s * np.sqrt(share)
    with np.errstate(divide="ignore", invalid="ignore"):  # the branch not taken may divide by 0
        from_prior = np.where(information > 1, ((f0 - m) / s) ** 2, (s * (k - n * p0)) ** 2)
    peak = _log_binomial(k, rest, f0) - 0.5 * from_prior + 0.5 * np.log(share) - 0.5 * _LOG_2PI

    def log_integrand(rows: np.ndarray, t: np.ndarray) -> np.ndarray:
        fall = _fall(w[rows, None] * t, n[rows, None], p0[rows, None])
        return -fall - 0.5 * share[rows, None] * t**2

    low, high = -_reach(log_integrand, share, -1.0), _reach(log_integrand, share, 1.0)
    step = np.minimum(0.5, 0.45 / np.maximum(w, 0.5))  # in t; sigmoids and their powers are about 1 wide in f
    density = np.empty(len(m))
    for rows, n_nodes in _alike((high - low) / step, np.ones(len(m), dtype=bool)):
        density[rows] = peak[rows] + _log_trapezoid(log_integrand, rows, low[rows], high[rows], n_nodes)
    return density


def log_count_average(y: np.ndarray, m: np.ndarray, s: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """The log probability of a negative binomial count with log rate ~ N(m, s²): a binomial of y in y + dispersion."""
    rho = np.clip(dispersion, 1e-9, 1e15)  # beyond these it is 0 surely, or Poisson
    return log_binomial_average(y, rho, m - np.log(rho), s) - np.log1p(y / rho)


def _mode(k: np.ndarray, n: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The root f <= 0 of s² (k - n sigmoid(f)) - (f - m), by Newton's method."""
    v = s**2
    # With e^f for sigmoid(f) the root is known; it lies below, and from the next step on all iterates lie above.
    with np.errstate(divide="ignore", invalid="ignore"):
        omega = special.wrightomega(np.log(n * v) + m + k * v)
        f = np.minimum(np.where(omega > 1, np.log(omega) - np.log(n * v), m + k * v - omega), 0.0)
    for _ in range(50):
        p = special.expit(f)
        step = (v * (k - n * p) - (f - m)) / (1 + v * n * p * (1 - p))
        f = np.minimum(f + step, 0.0)
        if not (step**2 * (1 + v * n * p) > 1e-12 * v).any():  # 1e-6 widths: the next would be 1e-12
            break
    return f


def _fall(d: np.ndarray, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """n [log(1 + p (e^d - 1)) - p d] for p <= 1/2: how far a binomial log-likelihood falls d away from logit p."""
    inside = np.minimum(d, 700.0)  # beyond it e^d is no double, and the logarithm is straight
    return n * (np.log1p(p * np.expm1(inside)) + (d - inside) - p * d)


def _log_binomial(k: np.ndarray, rest: np.ndarray, f: np.ndarray) -> np.ndarray:
    """log C(n, k) p^k (1-p)^rest at f = logit p, without the difference of large numbers that this is."""
    n = k + rest
    both = np.minimum(k, rest) > 0
    some_k, some_rest = np.where(both, k, 1.0), np.where(both, rest, 1.0)
    away = f - np.log(some_k) + np.log(some_rest)  # from the f at which k / n is expected
    away, rarer = np.where(k > rest, -away, away), np.minimum(some_k, some_rest) / (some_k + some_rest)
    mixed = _log_stirling(n) - _log_stirling(k) - _log_stirling(rest) - _fall(away, n, rarer)
    return np.where(both, mixed, -k * np.logaddexp(0, -f) - rest * np.logaddexp(0, f))


def _log_stirling(x: np.ndarray) -> np.ndarray:
    """log x! - x log x + x, about log(2πx) / 2."""
    large = np.maximum(x, 30.0)
    series = 0.5 * (_LOG_2PI + np.log(large)) + 1 / (12 * large) - 1 / (360 * large**3)
    small = np.minimum(x, 30.0)
    return np.where(x > 30, series, special.gammaln(small + 1) - special.xlogy(small, small) + small)


def _log_gamma_bottom(a: np.ndarray) -> np.ndarray:
    """The logarithm of a value that Gamma(a, 1) seldom falls below; for small a a bound, where it is no double."""
    bound = (np.log(_LEFT_OUT) + special.gammaln(a + 1)) / a
    return np.where(a > 1, np.log(special.gammaincinv(np.maximum(a, 1.0), _LEFT_OUT)), bound)


Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (rows, nodes of each) -> logarithms


def _reach(log_integrand: Integrand, share: np.ndarray, sign: float) -> np.ndarray:
    """How far from 0, a little generously, the integrand has fallen by _DROP; the prior alone falls by share t² / 2."""
    high = np.sqrt(2 * _DROP / share)
    rows, low = np.arange(len(share)), np.full(len(share), 0.25 * np.sqrt(2 * _DROP))
    for _ in range(6):  # in ratios, so that six halvings are enough for any width
        middle = np.sqrt(low * high)
        gone = log_integrand(rows, sign * middle[:, None])[:, 0] < -_DROP
        low, high = np.where(gone, low, middle), np.where(gone, middle, high)
    return high


def _alike(n_steps: np.ndarray, wanted: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The wanted rows in groups that need about as many nodes, few enough at once for the cache."""
    level = np.full(len(n_steps), -1)
    level[wanted] = np.ceil(2 * np.log2(np.maximum(n_steps[wanted], 1.0)))
    for half_octave in np.unique(level[wanted]):
        n_nodes = min(int(2 ** (half_octave / 2)) + 2, _MOST_NODES)
        rows = np.flatnonzero(level == half_octave)
        size = max(1, _AT_ONCE // n_nodes)
        for start in range(0, len(rows), size):
            yield rows[start : start + size], n_nodes


def _log_trapezoid(
    log_integrand: Integrand, rows: np.ndarray, low: np.ndarray, high: np.ndarray, n_nodes: int
) -> np.ndarray:
    """The logarithm of the integral from low to high, for each row."""
    nodes = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, n_nodes)
    logs = log_integrand(rows, nodes)
    top = logs.max(axis=1)
    return top + np.log(np.exp(logs - top[:, None]).sum(axis=1) * (high - low) / (n_nodes - 1))
