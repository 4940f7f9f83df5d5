"""Anderson acceleration of one client's steps, in the coordinates (m, log v): as meanfield._Anderson, number by number."""

from __future__ import annotations

from math import exp, isfinite, log

import numpy as np

from polyfed.gp.compiled.jit import jit_allocating, jit_exact
from polyfed.gp.compiled.lapack import gesv
from polyfed.gp.compiled.triangles import copied, dot

DEPTH = 6


@jit_exact
def flat(m, v, out):
    N = len(m)
    for i in range(N):
        out[i] = m[i]
        out[N + i] = log(max(v[i], 1e-300))


@jit_allocating
def extrapolated(points, images, k, differences, m, v):
    """(m, v) where the residual, linear in the last k points, would vanish; False if that says nothing new."""
    P, p = points.shape[1], k - 1
    gram, weights, w = np.empty((DEPTH, DEPTH)), np.empty(DEPTH), np.empty(4 + DEPTH, np.int32)
    last, largest = differences[DEPTH - 1], 0.0
    for i in range(P):
        last[i] = images[k - 1, i] - points[k - 1, i]
    for a in range(p):
        for i in range(P):
            differences[a, i] = (images[a + 1, i] - points[a + 1, i]) - (images[a, i] - points[a, i])
        for b in range(a + 1):
            gram[a, b] = gram[b, a] = dot(differences[a], differences[b], P)
        largest = max(largest, gram[a, a])
        weights[a] = dot(differences[a], last, P)
    for a in range(p):
        gram[a, a] += 1e-12 * largest + 1e-300
    if not gesv(gram, weights, p, DEPTH, w):
        return False
    news = False
    for a in range(p):
        news = news or weights[a] != 0.0
    for i in range(P):
        new = images[k - 1, i]
        for a in range(p):
            new -= weights[a] * (points[a + 1, i] - points[a, i] + differences[a, i])
        last[i] = new
        news = news and isfinite(new)
    if news:
        N = len(m)
        for i in range(N):
            m[i] = last[i]
            v[i] = exp(min(last[N + i], 300.0))
    return news


@jit_exact
def forget(points, images, k):
    """All but the last point."""
    copied(points[k - 1], points[0])
    copied(images[k - 1], images[0])
