"""What clients receive about shared latents (knowledge.py), as compiled loops take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from polyfed.gp.compiled.layout import contiguous
from polyfed.gp.compiled.metrics import SCALES
from polyfed.gp.kernels import MetricKernel
from polyfed.gp.whitened import inverse_root, n_features, slopes_of_root

if TYPE_CHECKING:
    from polyfed.gp.exact import ExactModel


@dataclass(frozen=True)
class SharedKnowledge:
    """`arrays` are points, starts, Z, triangles and shifts, as `solve_clients` takes them; `held` is what points point at."""

    arrays: tuple[np.ndarray, ...]
    held: tuple[np.ndarray, ...] = ()

    @classmethod
    def nothing(cls) -> SharedKnowledge:
        empty = np.zeros((0, 0))
        return cls((np.zeros((5, 0), np.intp), np.zeros(1, np.intp), empty, empty, empty))

    @classmethod
    def of(cls, model: ExactModel) -> SharedKnowledge | None:
        """None if nothing is received, or if clients differ in the kernels of shared latents: torch takes care of that."""
        knowledge, prior = model.knowledge, model.prior
        if knowledge is None or "informed" in vars(model):
            return None
        latents = range(knowledge.n_shared)
        names = [f"kernels.{b}.log_phi1" for b in latents]
        if not all(prior.is_common(name) for name in names if name in prior.parameters):
            return None
        held: list[np.ndarray] = []
        points = np.zeros((5, knowledge.n_shared), np.intp)
        for b in latents:
            kernel = prior.kernels[b]
            assert isinstance(kernel, MetricKernel)
            if kernel.features is not None:
                given = model.distances.kept(_features, kernel.features)
                points[0, b] = given.ctypes.data
                continue
            phi1 = prior.phi1(b).detach()
            phi1 = phi1.reshape(-1, phi1.shape[-1])[0]
            R = inverse_root(kernel, knowledge.Z, phi1)
            mine = contiguous(R), contiguous(slopes_of_root(kernel, knowledge.Z, phi1, R))
            points[1:, b] = *(each.ctypes.data for each in mine), *SCALES[kernel.metric]
            held += mine
        starts = np.cumsum([0, *(n_features(prior, b, len(knowledge.Z)) for b in latents)])
        evidence = knowledge.evidence
        P = evidence.shift.shape[-1]
        triangles, shifts = evidence.triangle.reshape(-1, P * (P + 1) // 2), evidence.shift.reshape(-1, P)
        arrays = (points, starts.astype(np.intp), contiguous(knowledge.Z.mT), contiguous(triangles), contiguous(shifts))
        return cls(arrays, tuple(held))


def _features(features: Callable[[Tensor], Tensor], x: Tensor) -> np.ndarray:
    """(C, U, M) of all inputs."""
    return contiguous(features(x.detach() if x.dim() == 3 else x.detach()[None]))
