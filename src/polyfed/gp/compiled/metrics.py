"""Distances of the inputs of each client among themselves, for kernels that see these inputs (kernels.py): lower triangles;
and of one input to others with a φ₁ for each dimension, with the derivative in these.

By differences: nothing cancels, and the few pairs of a client cost no more than a product of matrices would.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types
from torch import Tensor

from polyfed.gp import kernels
from polyfed.gp.compiled.jit import callback, entry, jit
from polyfed.gp.compiled.pointers import BY_INPUT, SCALED

SQUARED, ABSOLUTE, PRODUCTS = range(3)


@jit
def _lower(metric, x, d):
    D, U = x.shape
    for i in range(U):
        row = d[i]
        row[: i + 1] = 0.0
        for k in range(D):
            column, x_i = x[k], x[k, i]
            if metric == SQUARED:
                for j in range(i):
                    e = x_i - column[j]
                    row[j] += e * e
            elif metric == ABSOLUTE:
                for j in range(i):
                    row[j] += abs(x_i - column[j])
            else:
                for j in range(i + 1):
                    row[j] += x_i * column[j]


@entry(types.void(types.intp, types.Array(types.float64, 3, "C", readonly=True), types.Array(types.float64, 3, "C")))
def distances_of_clients(metric, x, d):
    for c in range(len(x)):
        _lower(metric, x[c], d[c])


@callback(SCALED)
def scaled_squared(x, columns, stride, dims, phi1, n, t):
    for i in range(n):
        t[i] = 0.0
    for k in range(dims):
        x_k, phi, at = x[k], phi1[k], k * stride
        for i in range(n):
            e = x_k - columns[at + i]
            t[i] += phi * (e * e)


@callback(SCALED)
def scaled_absolute(x, columns, stride, dims, phi1, n, t):
    for i in range(n):
        t[i] = 0.0
    for k in range(dims):
        x_k, phi, at = x[k], phi1[k], k * stride
        for i in range(n):
            t[i] += phi * abs(x_k - columns[at + i])


@callback(BY_INPUT, sums=True)
def squared_by_input(x, columns, stride, dims, weights, factor, n, out):
    for k in range(dims):
        x_k, at, total = x[k], k * stride, 0.0
        for i in range(n):
            e = x_k - columns[at + i]
            total += weights[i] * (e * e)
        out[k] += factor * total


@callback(BY_INPUT, sums=True)
def absolute_by_input(x, columns, stride, dims, weights, factor, n, out):
    for k in range(dims):
        x_k, at, total = x[k], k * stride, 0.0
        for i in range(n):
            total += weights[i] * abs(x_k - columns[at + i])
        out[k] += factor * total


# by the metric of a kernel; with what it does to inputs before it compares them
METRICS: dict[Callable, tuple[int, Callable[[Tensor], Tensor]]] = {
    kernels.squared_distance: (SQUARED, lambda x: x),
    kernels.absolute_distance: (ABSOLUTE, lambda x: x),
    kernels.cosine: (PRODUCTS, kernels.unit),
    kernels.affine_cosine: (PRODUCTS, kernels.with_constant),
}


# t of scaled inputs and its derivative, for metrics of kernels with length-scales
SCALES: dict[Callable, tuple[int, int]] = {
    kernels.squared_distance: (scaled_squared.address, squared_by_input.address),
    kernels.absolute_distance: (scaled_absolute.address, absolute_by_input.address),
}


def lower_distances(metric: Callable, x: Tensor) -> np.ndarray:
    """(C, U, U) for inputs (C, U, D) or (U, D); zero above the diagonals."""
    code, prepared = METRICS[metric]
    columns = columns_of_inputs(metric, prepared(x))
    d = np.zeros((len(columns), x.shape[-2], x.shape[-2]))
    distances_of_clients(code, columns, d)
    return d


def columns_of_inputs(metric: Callable, x: Tensor) -> np.ndarray:
    """(C, D, U), whatever the metric."""
    return np.ascontiguousarray((x.detach() if x.dim() == 3 else x.detach()[None]).mT.numpy())
