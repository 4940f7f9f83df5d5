"""Whether a Gaussian process is exact or sparse, and which inducing inputs it uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.estimators.memory import exact_bytes, holds
from polyfed.gp import (
    ExactModel,
    InformedSparseModel,
    Knowledge,
    Model,
    PaperSparseModel,
    Prior,
    Rows,
    SparseModel,
    choose_inducing,
    infer,
)
from polyfed.gp.inducing import METHODS
from polyfed.gp.lmc import Distances
from polyfed.gp.stochastic import take

PAPER = "paper"  # its deterministic conditional, at inputs chosen uniformly
FIRST, MOST = 32, 1024  # inducing inputs that "auto" starts from and ends at
LOOKED_AT = (
    4096  # labels from which "auto" tells how many inducing inputs are enough: a part at random, if there are more
)
QUICK_STEPS = 20  # mean-field steps between two sizes: the certificate needs the sites to no more than a few digits


@dataclass(frozen=True)
class Sparsity:
    """The options `inducing`, `inducing_method` and `inducing_tolerance` of a MultiTaskGP.

    Attributes:
        points: number of inducing inputs, "auto", or None for the exact posterior, which becomes "auto" where memory
            does not hold it.
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

    def points_for(self, n_rows: int, n_latents: int) -> int | str | None:
        """`points` for so many rows."""
        if self.points is None and not holds(exact_bytes(n_rows, n_latents)):
            return "auto"
        return self.points

    def choose(self, prior: Prior, rows: Rows) -> Tensor | None:
        """Inducing inputs for this Θ; None for an exact model."""
        points = self.points_for(len(rows), prior.n_latents)
        if points is None or len(rows) == 0:
            return None
        if isinstance(points, int):
            return choose_inducing(prior, rows, points, method=self._selection, seed=self.seed)
        M, start, judged = FIRST, None, self._looked_at(rows)
        while True:
            Z = choose_inducing(prior, rows, M, method=self._selection, seed=self.seed)
            with torch.no_grad():
                model = SparseModel(prior, judged, Z)
                posterior = infer(model, start=start, tolerance=1e-3, max_steps=QUICK_STEPS)
            enough = float(posterior.q.certificate) <= self.tolerance * len(judged)
            if enough or len(Z) < M or M >= MOST:
                return Z
            M, start = 2 * M, posterior.marginals

    def _looked_at(self, rows: Rows) -> Rows:
        """As many labels of each task as tell what Z leaves unsaid of a row: beyond some thousand, the mean stands still."""
        share = LOOKED_AT / max(1, sum(len(block.y) for block in rows.blocks))
        if share >= 1:
            return rows
        generator = torch.Generator().manual_seed(self.seed)
        some = [
            torch.randperm(len(block.y), generator=generator)[: max(1, int(share * len(block.y)))]
            for block in rows.blocks
        ]
        return take(rows, some)[1]

    def build(
        self,
        prior: Prior,
        rows: Rows,
        Z: Tensor | None,
        distances: Distances | None = None,
        knowledge: Knowledge | None = None,
    ) -> Model:
        """The model of these rows with these inducing inputs, told so much of shared functions."""
        if Z is None:
            return ExactModel(prior, rows, distances, knowledge)
        if knowledge is not None:
            return InformedSparseModel(prior, rows, Z, knowledge)
        return PaperSparseModel(prior, rows, Z) if self.method == PAPER else SparseModel(prior, rows, Z)

    @property
    def _selection(self) -> str:
        return "uniform" if self.method == PAPER else self.method
