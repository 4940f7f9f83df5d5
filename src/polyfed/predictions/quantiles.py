"""The numerics behind intervals of counts, proportions and Student-t noise.

Quadratures. All are trapezoids of smooth functions that vanish at both ends, so their error falls
exponentially once the spacing is below the width of the narrowest feature; the tests hold them to 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

_LEFT_OUT = 1e-13  # probability beyond the outermost nodes
_MOST_NODES = 4001  # with this number, even a jump is integrated to 1e-3


def _normal_rule(spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the average over a standard normal variable."""
    z = np.linspace(-8, 8, min(int(16 / spacing) + 2, _MOST_NODES))
    weight = np.exp(-(z**2) / 2)
    return z, weight / weight.sum()


def rate_std(m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The standard deviation of sigmoid(f) over f ~ N(m, s^2)."""
    z, weight = _normal_rule(0.5 / max(1.0, s.max(initial=0.0)))  # the sigmoid is about 1 wide in f
    rate = special.expit(m[:, None] + s[:, None] * z)
    mean = rate @ weight
    return np.sqrt((rate - mean[:, None]) ** 2 @ weight)


def _log_precision_rule(dof: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Nodes and weights for the average over u = log tau with tau ~ Gamma(a, a), and a = dof/2."""
    a = min(dof / 2, 5e7)  # beyond this the noise is normal to 1e-8
    low = np.log(max(special.gammaincinv(a, _LEFT_OUT), 1e-300) / a)
    high = np.log(special.gammainccinv(a, _LEFT_OUT) / a)
    u = np.linspace(low, high, int((high - low) / min(0.4, 0.8 / np.sqrt(a))) + 2)
    weight = np.exp(a * (u - np.expm1(u)))
    return a, u, weight / weight.sum()


def student_cdf(dof: float) -> Callable[..., np.ndarray]:
    """The function that gives P(f + scale * t <= x), where f ~ N(0, s^2), as `student_reach` has it."""
    _, u, weight = _log_precision_rule(dof)

    def below(x: np.ndarray, s: np.ndarray, scale: np.ndarray) -> np.ndarray:
        std = np.maximum(np.hypot(s[:, None], scale[:, None] * np.exp(-u / 2)), 1e-150)
        return special.ndtr(np.clip(x[:, None] / std, -1e150, 1e150)) @ weight

    return below


def student_reach(tail: float, dof: float) -> Callable[..., np.ndarray]:
    """The function that finds x with P(f + scale * t > x) = tail < 1/2, where f ~ N(0, s^2).

    Student-t noise is normal noise of variance scale^2 / tau with tau ~ Gamma(dof/2, dof/2), so this tail is
    the average of normal tails over u = log tau.
    """
    a, u, weight = _log_precision_rule(dof)

    def solve(s: np.ndarray, scale: np.ndarray) -> np.ndarray:
        unit = np.maximum(np.hypot(s, scale), 1e-300)
        s, scale = s / unit, scale / unit
        std = np.maximum(np.hypot(s[:, None], scale[:, None] * np.exp(-u / 2)), 1e-150)
        low = np.zeros(len(s))
        # f exceeds the one and the noise the other with tail/2 each, so their sum exceeds both with less.
        high = -s * special.ndtri(tail / 2) - scale * special.stdtrit(2 * a, tail / 2)
        x, active = high.copy(), np.flatnonzero(high > 0)
        for step in range(200):
            z = x[active, None] / std[active]
            above, slope = special.ndtr(-z) @ weight, (z * np.exp(-(z**2) / 2)) @ weight / np.sqrt(2 * np.pi)
            low[active] = np.where(above > tail, x[active], low[active])
            high[active] = np.where(above > tail, high[active], x[active])
            # Newton on log P against log x, nearly straight far out; bisection where it leaves the bracket.
            newton = x[active] * np.exp(np.clip(np.log(above / tail) * above / slope, -9, 9))
            inside = (newton > low[active]) & (newton < high[active]) & (step < 60)
            previous, x[active] = x[active], np.where(inside, newton, (low[active] + high[active]) / 2)
            active = active[np.abs(x[active] - previous) > 1e-13 * (1 + previous)]
            if not len(active):
                break
        return x * unit

    return solve


def count_quantile(q: float, m: np.ndarray, s: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """The smallest whole k with P(y <= k) >= q, by bisection on a logarithmic scale."""
    low = np.full(len(m), -1.0)
    high = np.ceil(np.exp(np.minimum(m + s * abs(special.ndtri(q)), 600)))
    short = np.arange(len(m))
    while len(short := short[count_cdf(high[short], m[short], s[short], rho[short]) < q]):
        low[short], high[short] = high[short], 4 * high[short] + 4
        short = short[high[short] < 1e300]  # an answer for a latent_std beyond reason
    while True:
        wide = high - low > np.maximum(1, 1e-12 * high)  # beyond 1e12, neighbours do not differ as floats
        if not wide.any():
            return high
        middle = np.floor(np.sqrt(low[wide] + 1) * np.sqrt(high[wide] + 1))
        middle = np.clip(middle, low[wide] + 1, high[wide] - 1)
        enough = count_cdf(middle, m[wide], s[wide], rho[wide]) >= q
        high[wide], low[wide] = np.where(enough, middle, high[wide]), np.where(enough, low[wide], middle)


def count_cdf(k: np.ndarray, m: np.ndarray, s: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """P(y <= k) for y negative binomial with log rate f ~ N(m, s^2).

    Given f, y <= k is as probable as logit(beta) > f - log rho with beta ~ Beta(k + 1, rho): two independent
    variables are compared. The wider one is integrated in closed form and the narrower one by quadrature, so
    that the integrand is never a step between two nodes, whatever the latent_std.
    """
    # A gamma variable of shape 1e10 varies by 1e-5: larger ones are it, moved along the logarithmic axis.
    a, b = np.minimum(k + 1, 1e10), np.clip(rho, 1e-6, 1e10)
    threshold = m - np.log(b) - np.log((k + 1) / a)
    spread = _logit_std(a, b)
    probability = np.full(len(k), np.nan)
    for rows, average in ((s < spread, _over_latent), (s >= spread, _over_logit)):
        if rows.any():
            probability[rows] = average(threshold[rows], s[rows], a[rows], b[rows])
    return probability


def _logit_std(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(special.polygamma(1, a) + special.polygamma(1, b))  # of logit(beta), beta ~ Beta(a, b)


def _over_latent(threshold: np.ndarray, s: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    z, weight = _normal_rule(min(0.7, 0.35 / max(s.max(), 1e-300)))
    t, a, b = np.broadcast_arrays(threshold[:, None] + s[:, None] * z, a[:, None], b[:, None])
    # Two ways to write the same, each exact where the other would subtract from 1.
    above, left = np.empty(t.shape), t < 0
    above[left] = special.betaincc(a[left], b[left], special.expit(t[left]))
    above[~left] = special.betainc(b[~left], a[~left], special.expit(-t[~left]))
    return above @ weight


def _over_logit(threshold: np.ndarray, s: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # logit(beta) is the difference of two independent log-gamma variables, which end where these do.
    shapes = np.stack([a, b])
    bottom = np.log(np.maximum(special.gammaincinv(shapes, _LEFT_OUT), 1e-300))
    top = np.log(special.gammainccinv(shapes, _LEFT_OUT))
    low, high = bottom[0] - top[1], top[0] - bottom[1]
    n = min(int(((high - low) / np.minimum(0.7 * _logit_std(a, b), 0.35)).max()) + 2, _MOST_NODES)
    logit = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, n)
    log_density = -a[:, None] * np.logaddexp(0, -logit) - b[:, None] * np.logaddexp(0, logit)
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    below = special.ndtr((logit - threshold[:, None]) / s[:, None])
    return (weight * below).sum(axis=1) / weight.sum(axis=1)


def in_blocks(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """function(*arrays), 1024 rows at a time: the quadratures hold all nodes of a block in memory."""
    starts = range(0, max(len(arrays[0]), 1), 1024)
    return np.concatenate([function(*(array[i : i + 1024] for array in arrays)) for i in starts])
