"""The sites of all rows of a client, each task by its own likelihood.

`parts` has a line for each task that the client has data of: the place of its numbers in `codes`, how many rows a datum has,
how many data, the first of its rows, the place of its options in `options`, the addresses of its site and of its local bound,
and its place in `noise`. `powers` has its power.
"""

from __future__ import annotations

from polyfed.gp.compiled.jit import jit, jit_exact
from polyfed.gp.compiled.pointers import call_bound, call_site, pointer_to

CODES, ROWS, DATA, FIRST, OPTIONS, SITE_AT, BOUND_AT, NOISE = range(8)
WIDTH = 8


@jit
def _means(m, mu, f):
    for i in range(len(m)):
        f[i] = m[i] + mu[i]


@jit_exact
def _data(part, codes, options, noise, f, v):
    """What a likelihood is given of a task."""
    at, own, first = pointer_to(codes, part[CODES]), pointer_to(options, part[OPTIONS]), part[FIRST]
    return at, part[ROWS], part[DATA], noise[part[NOISE]], own, pointer_to(f, first), pointer_to(v, first)


@jit_exact
def sites(parts, powers, codes, options, noise, mu, m, v, f, h, r):
    """(h, r) of f̃, given its marginals; f is space to work in."""
    _means(m, mu, f)
    for k in range(len(parts)):
        part, power = parts[k], powers[k]
        first = part[FIRST]
        data = _data(part, codes, options, noise, f, v)
        call_site(part[SITE_AT], *data, pointer_to(h, first), pointer_to(r, first))
        for i in range(first, first + part[DATA] * part[ROWS]):
            h[i] *= power
            r[i] = power * r[i] - h[i] * mu[i]


@jit_exact
def local_bound(parts, powers, codes, options, noise, mu, m, v, f):
    """Σ ℓ over all data."""
    _means(m, mu, f)
    total = 0.0
    for k in range(len(parts)):
        part = parts[k]
        total += powers[k] * call_bound(part[BOUND_AT], *_data(part, codes, options, noise, f, v))
    return total
