"""What FedPAC's clients tell of their features, and whose heads the server mixes because of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, LabelCodec
from polyfed.kinds import LabelForm
from polyfed.methods.messages import State
from polyfed.methods.supervised import groups_of, rows_of
from polyfed.nets import Network

LEAST_SHARE = 1e-3  # smaller weights are rounding, or not worth mixing in another's head
LEAST_VARIANCE = 1e-10  # relative to the largest entry of P, so that it has a Cholesky factor


class Statistics(NamedTuple):
    """What a client reports of its features of a task: H, V, and the mean and number of each class."""

    moment: Tensor
    variance: Tensor
    means: Tensor
    counts: Tensor


def statistics(h: Tensor, y: Tensor, codec: LabelCodec, weights: Tensor | None = None) -> Statistics:
    """Of features (rows, d) and coded labels, which may count more or less."""
    groups = groups_of(y, codec)
    w = torch.ones(len(h), dtype=torch.float64) if weights is None else weights
    e, n = groups if codec.classes else torch.cat([_number(y, codec), groups], 1), w.sum()
    H = (w[:, None] * e).T @ h.to(torch.float64) / n
    # tr Cov(e ⊗ h) = E|e|²|h|² − |H|²; over n, the variance of the mean
    V = (w @ (e.square().sum(1) * h.square().sum(1)) / n - H.square().sum()).clamp_min(0.0) / n
    counts = w @ groups
    means = (w[:, None] * groups).T @ h.to(torch.float64) / counts.clamp_min(torch.finfo(counts.dtype).tiny)[:, None]
    return Statistics(H, V, means, counts)


def statistics_of(net: Network, values: State, data: ClientData, task: str) -> Statistics:
    """Of a client's labels of a task, with the features of these parameters."""
    x, y, codec, weights = rows_of(data, task)
    with torch.no_grad():
        return statistics(net.features(values, x, task), y, codec, weights)


def _number(y: Tensor, codec: LabelCodec) -> Tensor:
    """A label as one number of ordinary size."""
    if codec.task.form is LabelForm.PAIR:
        return y[:, :1] / y[:, 1:]
    return (y / codec.scale if codec.task.form is LabelForm.COUNT else y)[:, None]


def mixing_weights(H: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Row i holds the weights with which client i mixes the heads of all, from moments (clients, …) and variances.

    Equal moments: weights are as 1/V.

    >>> mixing_weights(np.zeros((2, 3)), np.array([1.0, 3.0])).round(12)
    array([[0.75, 0.25],
           [0.75, 0.25]])
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls  # a tenth of a second, for this method alone

    H, m = H.reshape(len(V), -1), len(V)
    cut = min(LEAST_SHARE, 0.1 / m)  # among a thousand, equal shares must survive
    alpha = np.empty((m, m))
    for i in range(m):
        away = H[i] - H
        P = away @ away.T
        P[np.diag_indices(m)] += V
        scale = P.diagonal().max() or 1.0
        P = P / scale
        P[np.diag_indices(m)] += np.maximum(LEAST_VARIANCE - V / scale, 0.0)
        # min ½w'Pw − 1'w over w ≥ 0 has the direction of α; with P = LL' it is min |L'w − L⁻¹1|²
        L = np.linalg.cholesky(P)
        w, _ = nnls(L.T, solve_triangular(L, np.ones(m), lower=True), maxiter=30 * m)
        share = w / w.sum()
        share[share < cut] = 0.0
        alpha[i] = share / share.sum()
    return alpha


def with_pooled_std(V: np.ndarray, n: np.ndarray) -> np.ndarray:
    """V of clients with n labels; one label shows no spread, which is not certainty: that of the others stands in."""
    several = n > 1
    if several.all() or not several.any():
        return V
    spread = (n * n * V)[several].sum() / n[several].sum()
    return np.where(several, V, spread / n)
