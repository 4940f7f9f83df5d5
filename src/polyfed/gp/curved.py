"""Features of outputs: what is linear in its inputs cannot level off; a function of what it says can.

Each output z, in standard deviations around its mean, gets the whitened features of an RBF kernel on points that cover where
such numbers lie. The sum over outputs of functions of one output each: as many features as there are outputs and points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyfed.gp.kernels import rbf
from polyfed.gp.linalg import cholesky

N_POINTS, REACH, LENGTH = 9, 2.5, 1.2
JITTER = 1e-4  # of the kernel's variance: neighbours are much alike, and what tells them apart is not to be amplified


def curved(z: Tensor) -> Tensor:
    """(N, T) → (N, T · 9), those of the first output first; of squared norm one at the most for each output."""
    points = torch.linspace(-REACH, REACH, N_POINTS, dtype=torch.float64)[:, None]
    phi = {"phi1": torch.tensor([LENGTH**-2.0], dtype=torch.float64)}
    L = cholesky(rbf(points, points, phi) + JITTER * torch.eye(N_POINTS, dtype=torch.float64))
    k = rbf(points, z.mT.reshape(-1, 1), phi)
    white = torch.linalg.solve_triangular(L, k, upper=False)
    return white.mT.reshape(z.shape[1], z.shape[0], N_POINTS).transpose(0, 1).flatten(1)
