"""Distances of the inputs of each client among themselves, for kernels that see these inputs (kernels.py): lower triangles.

By differences: nothing cancels, and the few pairs of a client cost no more than a product of matrices would.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types
from torch import Tensor

from polyfed.gp import kernels
from polyfed.gp.compiled.jit import entry, jit

_INPUTS = types.Array(types.float64, 3, "C", readonly=True)
SIGNATURE = types.void(_INPUTS, types.Array(types.float64, 3, "C"))


@jit
def _squared(x, d):
    D, U = x.shape
    for i in range(U):
        row = d[i]
        row[: i + 1] = 0.0
        for k in range(D):
            column, x_i = x[k], x[k, i]
            for j in range(i):
                e = x_i - column[j]
                row[j] += e * e


@jit
def _absolute(x, d):
    D, U = x.shape
    for i in range(U):
        row = d[i]
        row[: i + 1] = 0.0
        for k in range(D):
            column, x_i = x[k], x[k, i]
            for j in range(i):
                row[j] += abs(x_i - column[j])


@jit
def _products(x, d):
    D, U = x.shape
    for i in range(U):
        row = d[i]
        row[: i + 1] = 0.0
        for k in range(D):
            column, x_i = x[k], x[k, i]
            for j in range(i + 1):
                row[j] += x_i * column[j]


@entry(SIGNATURE)
def squared(x, d):
    for c in range(len(x)):
        _squared(x[c], d[c])


@entry(SIGNATURE)
def absolute(x, d):
    for c in range(len(x)):
        _absolute(x[c], d[c])


@entry(SIGNATURE)
def products(x, d):
    for c in range(len(x)):
        _products(x[c], d[c])


# by the metric of a kernel; with what it does to inputs before it compares them
METRICS: dict[Callable, tuple[Callable, Callable[[Tensor], Tensor]]] = {
    kernels.squared_distance: (squared, lambda x: x),
    kernels.absolute_distance: (absolute, lambda x: x),
    kernels.cosine: (products, kernels.unit),
    kernels.affine_cosine: (products, kernels.affine),
}


def lower_distances(metric: Callable, x: Tensor) -> np.ndarray:
    """(C, U, U) for inputs (C, U, D) or (U, D); zero above the diagonals."""
    compiled, prepared = METRICS[metric]
    inputs = prepared(x.detach() if x.dim() == 3 else x.detach()[None])
    d = np.zeros((len(inputs), x.shape[-2], x.shape[-2]))
    compiled(np.ascontiguousarray(inputs.mT.numpy()), d)
    return d
