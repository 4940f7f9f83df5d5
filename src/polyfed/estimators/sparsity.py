"""Whether a MultiTaskGP is exact or sparse, and which inducing inputs it uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp import ExactModel, Model, PaperSparseModel, Prior, Rows, SparseModel, choose_inducing, infer
from polyfed.gp.inducing import METHODS
from polyfed.gp.lmc import Distances

PAPER = "paper"  # its deterministic conditional, at inputs chosen uniformly
FIRST, MOST = 32, 1024  # inducing inputs that "auto" starts from and ends at
QUICK_STEPS = 20  # mean-field steps between two sizes: the certificate needs the sites to no more than a few digits


@dataclass(frozen=True)
class Sparsity:
    """The options `inducing`, `inducing_method` and `inducing_tolerance` of a MultiTaskGP.

    Attributes:
        points: number of inducing inputs, "auto", or None for the exact posterior.
        method: how they are chosen.
        tolerance: "auto" ends when the certificate ½hᵀd is below this many nats for each row.
        seed: of random choices.
    """

    points: int | str | None
    method: str
    tolerance: float
    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.points, str) and self.points != "auto":
            raise ConfigError(f"inducing is {self.points!r}", remedy="use a number, 'auto' or None")
        if isinstance(self.points, int) and self.points < 1:
            raise ConfigError(f"inducing is {self.points}", remedy="use at least one, 'auto' or None")
        if self.method not in (*METHODS, PAPER):
            raise ConfigError(
                f"inducing_method {self.method!r} is unknown", remedy=nearest(self.method, [*METHODS, PAPER])
            )

    def choose(self, prior: Prior, rows: Rows) -> Tensor | None:
        """Inducing inputs for this Θ; None for an exact model."""
        if self.points is None or len(rows) == 0:
            return None
        if isinstance(self.points, int):
            return choose_inducing(prior, rows, self.points, method=self._selection, seed=self.seed)
        M, start = FIRST, None
        while True:
            Z = choose_inducing(prior, rows, M, method=self._selection, seed=self.seed)
            with torch.no_grad():
                model = SparseModel(prior, rows, Z)
            posterior = infer(model, start=start, tolerance=1e-3, max_steps=QUICK_STEPS)
            enough = float(posterior.q.certificate) <= self.tolerance * len(rows)
            if enough or len(Z) < M or M >= MOST:
                return Z
            M, start = 2 * M, posterior.marginals

    def build(self, prior: Prior, rows: Rows, Z: Tensor | None, distances: Distances | None = None) -> Model:
        """The model of these rows with these inducing inputs."""
        if Z is None:
            return ExactModel(prior, rows, distances)
        return PaperSparseModel(prior, rows, Z) if self.method == PAPER else SparseModel(prior, rows, Z)

    @property
    def _selection(self) -> str:
        return "uniform" if self.method == PAPER else self.method
