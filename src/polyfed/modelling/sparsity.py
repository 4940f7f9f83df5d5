"""Whether a Gaussian process is exact or sparse, and which inducing inputs it uses."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp import ExactModel, InformedSparseModel, Knowledge, Model, PaperSparseModel, Prior, Rows, SparseModel
from polyfed.gp.inducing import METHODS, choose_inducing, in_turn
from polyfed.gp.lmc import Distances
from polyfed.gp.meanfield import infer
from polyfed.gp.stochastic import take
from polyfed.modelling.memory import exact_bytes, holds, is_soon_done, memory

PAPER = "paper"  # its deterministic conditional, at inputs chosen uniformly
EXACT, AUTO = "exact", "auto"
FIRST, MOST = 32, 1024  # inducing inputs that "auto" starts from and ends at
# Of many rows it takes fewer: LEAST_MOST, or as many as make PAIRS pairs of rows and inducing inputs.
LEAST_MOST, PAIRS = 64, 2**20
# Labels from which "auto" tells how many inducing inputs are enough (a part at random, if there are more) and mean-field steps
# between two sizes: the certificate needs its sites to no more than a few digits.
LOOKED_AT, QUICK_STEPS = 1024, 3


@dataclass(frozen=True)
class Sparsity:
    """The options `inducing`, `inducing_method` and `inducing_tolerance` of a MultiTaskGP."""

    # number of inducing inputs, "auto", "exact", or None for the exact posterior, which becomes "auto" where memory does
    # not hold it or a step of it would take long
    points: int | str | None
    method: str  # how they are chosen
    tolerance: float  # "auto" ends when the certificate ½hᵀd is below this many nats for each row
    seed: int  # of random choices

    def __post_init__(self) -> None:
        if isinstance(self.points, str) and self.points not in (EXACT, AUTO):
            raise ConfigError(f"inducing is {self.points!r}", remedy="use a number, 'auto', 'exact' or None")
        if isinstance(self.points, int) and self.points < 1:
            raise ConfigError(f"inducing is {self.points}", remedy="use at least one, 'auto', 'exact' or None")
        if self.method not in (*METHODS, PAPER):
            what = f"inducing_method {self.method!r} is unknown"
            raise ConfigError(what, remedy=nearest(self.method, [*METHODS, PAPER]))

    def points_for(self, n_rows: int, n_latents: int) -> int | str | None:
        if self.points is None:
            fits = is_soon_done(n_rows) and holds(exact_bytes(n_rows, n_latents))
            return None if fits else AUTO
        if self.points != EXACT:
            return self.points
        if not holds(exact_bytes(n_rows, n_latents)):
            raise ConfigError(
                f"inducing is {EXACT!r}, and memory ({memory() / 1e9:.1f} GB) does not hold "
                f"the exact posterior of {n_rows:,} rows",
                remedy="leave inducing out, or use 'auto' or a number",
            )
        return None

    def choose(self, prior: Prior, rows: Rows) -> Tensor | None:
        """Inducing inputs for this Θ; None for an exact model."""
        points = self.points_for(len(rows), prior.n_latents)
        if points is None or len(rows) == 0:
            return None
        if isinstance(points, int):
            return choose_inducing(prior, rows, points, method=self._selection, seed=self.seed)
        most, start, judged = most_for(len(rows)), None, self._looked_at(rows)
        M, Z, further = FIRST, rows.x[:0], None
        if self._selection == "greedy":  # which goes on from what it has
            further = in_turn(prior, rows, most, self.seed)
        while True:
            if further is None:
                Z = choose_inducing(prior, rows, M, method=self._selection, seed=self.seed)
            else:
                Z = torch.cat([Z, *islice(further, M - len(Z))])
            if most <= M or len(Z) < M:
                return Z
            with torch.no_grad():
                model = SparseModel(prior, judged, Z)
                posterior = infer(model, start=start, tolerance=1e-3, max_steps=QUICK_STEPS)
            if float(posterior.q.certificate) <= self.tolerance * len(judged):
                return Z
            start, M = posterior.marginals, min(2 * M, most)

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
        """The model of these rows with these inducing inputs, with this knowledge of shared functions."""
        if Z is None:
            return ExactModel(prior, rows, distances, knowledge)
        if knowledge is not None:
            return InformedSparseModel(prior, rows, Z, knowledge)
        return PaperSparseModel(prior, rows, Z) if self.method == PAPER else SparseModel(prior, rows, Z)

    @property
    def _selection(self) -> str:
        return "uniform" if self.method == PAPER else self.method


def most_for(n_rows: int) -> int:
    """Inducing inputs that "auto" takes of `n_rows` rows at the most, a power of two.

    >>> most_for(1000), most_for(5000), most_for(1_000_000)
    (1024, 128, 64)
    """
    wanted = min(MOST, max(LEAST_MOST, PAIRS // max(1, n_rows)))
    return 2 ** (wanted.bit_length() - 1)
