"""The E-step: coordinate ascent between q(f) and the auxiliary variables, until the bound stands still.

Every likelihood offers a site for the current marginals of q(f); the sites give the next q(f). With Pólya-Gamma
sites each such step raises the bound, but where classes are well separated it may take hundreds. So from the
third step on, marginals are extrapolated from the last few (Anderson acceleration); an extrapolation that would
lower the bound is dropped for the plain step, and a plain step that would (possible with the tighter Gaussian
bound alone) is halved until it does not. The bound never falls.

A batch of clients goes through the same steps together; each is accepted, dropped and converged by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from polyfed.gp.linalg import NotPositiveDefinite
from polyfed.gp.predict import LatentPrediction
from polyfed.gp.prior import Prior
from polyfed.gp.rows import Rows

MAX_HALVINGS = 30
DEPTH = 6  # points that Anderson acceleration remembers
Marginals = tuple[Tensor, Tensor]  # m and v of each row


class RowPosterior(Protocol):
    """q(f) as far as inference looks at it: its sites and the marginals of the rows."""

    @property
    def h(self) -> Tensor: ...
    @property
    def r(self) -> Tensor: ...
    @property
    def m(self) -> Tensor: ...
    @property
    def v(self) -> Tensor: ...


class Model(Protocol):
    """What inference asks of a model: the exact one and the sparse ones answer alike."""

    prior: Prior

    @property
    def rows(self) -> Rows: ...
    def prior_marginals(self) -> Marginals: ...
    def solve(self, h: Tensor, r: Tensor) -> RowPosterior: ...
    def step(self, h: Tensor, r: Tensor) -> RowPosterior: ...
    def complete(self, q: Any) -> Any: ...
    def bound(self, q: Any) -> Tensor: ...
    def predict(self, q: Any, x: Tensor) -> LatentPrediction: ...


@dataclass(frozen=True)
class Posterior:
    """q(f) with the bound it reached; `history` holds the bound after each step, (steps, ...)."""

    q: Any  # a RowPosterior, of the model's own kind
    history: Tensor
    converged: bool

    @property
    def bounds(self) -> list[float]:
        """The bound after each step (of all clients together, if there are several)."""
        return self.history.reshape(len(self.history), -1).sum(-1).tolist()

    @property
    def bound(self) -> float:
        return self.bounds[-1]

    @property
    def marginals(self) -> Marginals:
        """(m, v): all that a later call needs as its `start`."""
        return self.q.m, self.q.v


def infer(
    model: Model,
    *,
    start: Marginals | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 200,
    accelerate: bool = True,
    of_f: bool = False,
) -> Posterior:
    """Alternate equ:mf_local_q1, eq. 3a and equ:mf_local_q2, eq. 3b until the bound moves by less than `tolerance` nats.

    Args:
        model: prior and rows, of one client or of a batch.
        start: marginals (m, v) of an earlier posterior of the same rows; the prior's by default, and where they are NaN.
        tolerance: zero to go on until nothing moves at all.
        max_steps: number of posteriors at the most (the paper's mean-field steps).
        accelerate: extrapolate from the third step on; False for the paper's plain iteration.
        of_f: `start` holds marginals of f, as one E-step leaves them to the next, whose prior mean may be another.
    """
    at_once = getattr(model, "infer_at_once", None)  # an exact model may do all of it in compiled code
    if at_once is not None:
        found = at_once(start, of_f=of_f, tolerance=tolerance, max_steps=max_steps, accelerate=accelerate)
        if found is not None:
            return found
    rows, prior = model.rows, model.prior
    if of_f and start is not None:
        start = rows.as_f(start, back=True)
    at = model.prior_marginals() if start is None else _filled(start, model.prior_marginals())
    q = model.step(*rows.sites(prior, *at))
    history = [_value(model, q)]
    memory = _Anderson()
    converged = torch.full_like(history[0], len(rows) == 0, dtype=torch.bool)
    while not bool(converged.all()) and len(history) < max_steps:
        bound = history[-1]
        plain = rows.sites(prior, q.m, q.v)
        # Nothing left to do, as after one step with Gaussian tasks alone.
        converged = converged | ((plain[0] == q.h) & (plain[1] == q.r)).all(-1)
        if bool(converged.all()):
            break
        further, extrapolated = memory.extrapolate(at, (q.m, q.v)) if accelerate else ((q.m, q.v), ~converged & False)
        sites = rows.sites(prior, *further) if bool(extrapolated.any()) else plain
        at, sites = further, _choose(converged, (q.h, q.r), sites)
        try:
            candidate = model.step(*sites)
            value = _value(model, candidate)
            fell = _fell(value, bound) | (extrapolated & (value < bound))  # an extrapolation has no claim to slack
        except NotPositiveDefinite:  # an extrapolation may go anywhere; a plain step that breaks down is an error
            if not bool(extrapolated.any()):
                raise
            candidate, value, fell = q, bound, extrapolated
        if bool(fell.any()):
            memory.forget(fell)
            at = _choose(fell, (q.m, q.v), at)
            extrapolated = extrapolated & ~fell
            candidate, value = _go_back(model, q, bound, sites, plain, fell)
        q = candidate
        history.append(value)
        # An extrapolation may gain little by bad luck; only a plain step that gains nothing is the end.
        stands = value - bound < tolerance + 1e-15 * bound.abs()  # what rounding can show
        converged = converged | (stands & ~extrapolated)
        memory.forget(stands)
    return Posterior(model.complete(q), torch.stack(history), bool(converged.all()))


def _go_back(
    model: Model, q: RowPosterior, bound: Tensor, sites: Marginals, plain: Marginals, fell: Tensor
) -> tuple[RowPosterior, Tensor]:
    """Where the bound fell, the plain step instead of what was tried, or a part of it that does not lower the bound."""
    for halving in range(MAX_HALVINGS):
        share = 0.5**halving
        part = (q.h + share * (plain[0] - q.h), q.r + share * (plain[1] - q.r))
        sites = _choose(fell, part, sites)
        candidate = model.step(*sites)
        value = _value(model, candidate)
        fell = _fell(value, bound)
        if not bool(fell.any()):
            return candidate, value
    candidate = model.step(*_choose(fell, (q.h, q.r), sites))  # not a step to be had: stay
    return candidate, _value(model, candidate)


def _fell(value: Tensor, bound: Tensor) -> Tensor:
    return ~(value >= bound - 1e-10 * (1.0 + bound.abs()))  # a fall within rounding is none; NaN is one


def _choose(where: Tensor, a: Marginals, b: Marginals) -> Marginals:
    """a for the clients in `where`, b for the others."""
    return torch.where(where[..., None], a[0], b[0]), torch.where(where[..., None], a[1], b[1])


@dataclass
class _Anderson:
    """Anderson acceleration of the map from marginals to marginals, in the coordinates (m, log v)."""

    points: list[Tensor] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)
    resting: Tensor | None = None

    def forget(self, where: Tensor) -> None:
        """Drop the past of some clients, whose next step is plain: points that are all the same give no direction."""
        self.resting = where if self.resting is None else self.resting | where
        if self.points and bool(where.any()):
            self.points = [torch.where(where[..., None], self.points[-1], old) for old in self.points]
            self.images = [torch.where(where[..., None], self.images[-1], old) for old in self.images]

    def extrapolate(self, at: Marginals, image: Marginals) -> tuple[Marginals, Tensor]:
        """Where the residual, linear in what was seen last, would vanish; and for which clients that is news."""
        self.points = [*self.points, _flat(at)][-DEPTH:]
        self.images = [*self.images, _flat(image)][-DEPTH:]
        x, fx = torch.stack(self.points, -1), torch.stack(self.images, -1)
        residual = fx - x
        dx, dr = x.diff(dim=-1), residual.diff(dim=-1)
        if dx.shape[-1] == 0:
            return image, torch.zeros(image[0].shape[:-1], dtype=torch.bool)
        gram = dr.mT @ dr
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(1e-12 * diagonal.amax(-1, keepdim=True) + 1e-300)
        weights = torch.linalg.solve(gram, dr.mT @ residual[..., -1:])
        new = (fx[..., -1:] - (dx + dr) @ weights)[..., 0]
        news = (weights != 0).any(-1).any(-1) & torch.isfinite(new).all(-1)
        if self.resting is not None:
            news, self.resting = news & ~self.resting, None
        m, log_v = new.chunk(2, dim=-1)
        return _choose(news, (m, log_v.clamp_max(300.0).exp()), image), news


def _flat(marginals: Marginals) -> Tensor:
    m, v = marginals
    return torch.cat([m, v.clamp_min(1e-300).log()], dim=-1)


def _filled(given: Marginals, otherwise: Marginals) -> Marginals:
    """What is given, and the other where it is NaN."""
    m, v = (torch.where(one.isnan(), other, one) for one, other in zip(given, otherwise, strict=True))
    return m, v


def _value(model: Model, q: RowPosterior) -> Tensor:
    with torch.no_grad():
        return model.bound(q)
