"""The E-step: coordinate ascent between q(f) and the auxiliary variables, until the bound stands still.

Every likelihood offers a site for the current marginals of q(f); the sites give the next q(f). With Pólya-Gamma
sites each such step raises the bound, but where classes are well separated it may take hundreds. So from the
third step on, marginals are extrapolated from the last few (Anderson acceleration); an extrapolation that would
lower the bound is dropped for the plain step, and a plain step that would (possible with the tighter Gaussian
bound alone) is halved until it does not. The bound never falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyfed.gp.exact import ExactModel
from polyfed.gp.linalg import Gaussian

MAX_HALVINGS = 30
Marginals = tuple[Tensor, Tensor]  # m and v of each row


@dataclass(frozen=True)
class Posterior:
    """q(f) with the bound it reached; `bounds` holds the value after each step."""

    q: Gaussian
    bounds: tuple[float, ...]
    converged: bool

    @property
    def bound(self) -> float:
        return self.bounds[-1]

    @property
    def marginals(self) -> Marginals:
        """(m, v): all that a later call needs as its `start`."""
        return self.q.m, self.q.v


def infer(
    model: ExactModel,
    *,
    start: Marginals | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 200,
    accelerate: bool = True,
) -> Posterior:
    """Alternate equ:mf_local_q1 and equ:mf_local_q2 until the bound moves by less than `tolerance` nats.

    Args:
        model: prior and rows.
        start: marginals (m, v) of an earlier posterior of the same rows; the prior's by default.
        tolerance: zero to go on until nothing moves at all.
        max_steps: number of posteriors accepted at the most (the paper's mean-field steps).
        accelerate: extrapolate from the third step on; False for the paper's plain iteration.
    """
    rows, prior = model.rows, model.prior
    at = start or model.prior_marginals()
    q = model.solve(*rows.sites(prior, *at))
    bounds = [_value(model, q)]
    memory = _Anderson()
    converged = len(rows) == 0
    while not converged and len(bounds) < max_steps:
        h, r = rows.sites(prior, q.m, q.v)
        if torch.equal(h, q.h) and torch.equal(r, q.r):
            converged = True  # nothing left to do, as after one step with Gaussian tasks alone
            break
        further = memory.extrapolate(at, (q.m, q.v)) if accelerate else None
        candidate = None if further is None else _if_higher(model, bounds[-1], *rows.sites(prior, *further))
        extrapolated = further is not None and candidate is not None
        if candidate is None:
            if further is not None:
                memory.forget()  # it led astray
            further = (q.m, q.v)
            candidate = _plain_step(model, q, bounds[-1], h, r)
        assert further is not None
        at = further
        gain = candidate[1] - bounds[-1]
        q = candidate[0]
        bounds.append(candidate[1])
        # An extrapolation may gain little by bad luck; only a plain step that gains nothing is the end.
        converged = gain < tolerance and not extrapolated
        if gain < tolerance:
            memory.forget()
    return Posterior(q, tuple(bounds), converged)


@dataclass
class _Anderson:
    """Anderson acceleration of the map from marginals to marginals, in the coordinates (m, log v)."""

    depth: int = 6
    points: list[Tensor] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)

    def forget(self) -> None:
        self.points.clear()
        self.images.clear()

    def extrapolate(self, at: Marginals, image: Marginals) -> Marginals | None:
        """The point where the residual, linear in what was seen last, would vanish; None without a past."""
        self.points = [*self.points, _flat(at)][-self.depth :]
        self.images = [*self.images, _flat(image)][-self.depth :]
        if len(self.points) < 2:
            return None
        x, fx = torch.stack(self.points, 1), torch.stack(self.images, 1)
        residual = fx - x
        dx, dr = x.diff(dim=1), residual.diff(dim=1)
        gram = dr.mT @ dr
        gram.diagonal().add_(1e-12 * gram.diagonal().max() + 1e-300)
        weights = torch.linalg.solve(gram, dr.mT @ residual[:, -1])
        new = fx[:, -1] - (dx + dr) @ weights
        if not bool(torch.isfinite(new).all()):
            return None
        m, log_v = new.chunk(2)
        return m, log_v.clamp_max(300.0).exp()


def _flat(marginals: Marginals) -> Tensor:
    m, v = marginals
    return torch.cat([m, v.clamp_min(1e-300).log()])


def _if_higher(model: ExactModel, bound: float, h: Tensor, r: Tensor) -> tuple[Gaussian, float] | None:
    q = model.solve(h, r)
    value = _value(model, q)
    return (q, value) if value >= bound - 1e-10 * (1.0 + abs(bound)) else None  # a fall within rounding is none


def _plain_step(model: ExactModel, q: Gaussian, bound: float, h: Tensor, r: Tensor) -> tuple[Gaussian, float]:
    """The posterior of the new sites, or of sites part of the way towards them if the bound would fall."""
    for halving in range(MAX_HALVINGS):
        share = 0.5**halving
        step = _if_higher(model, bound, q.h + share * (h - q.h), q.r + share * (r - q.r))
        if step is not None:
            return step
    return q, bound


def _value(model: ExactModel, q: Gaussian) -> float:
    with torch.no_grad():
        return float(model.bound(q))
