"""Learning Θ on one machine: initial values from the data, then the bound is maximised over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyfed.errors import ConfigError, NumericalError
from polyfed.gp import Model, Prior, Rows, group_of, infer
from polyfed.gp.projection import PROJECTION_STEP

# Targets and inputs are of order one, so values beyond these are data that ask for a degenerate model (constant
# targets want no noise at all): the optimiser stops there instead of running to infinity.
LIMITS = {
    "log_amplitude": (-9.0, 9.0),
    "log_phi1": (-14.0, 14.0),
    "kernels": (-9.0, 9.0),  # what else they have
    "mixing": (-30.0, 30.0),
    "noise": (-13.8, 6.9),
}
PROJECTION_START = 0.01  # spread of what projections make of inputs of spread one, before anything is learned
# Θ that wants more steps than this is a wild trial of the line search: a looser, still valid bound turns it away too.
LEARNING_STEPS, LEARNING_TOLERANCE = 60, 1e-7


def limits_of(name: str) -> tuple[float, float]:
    return LIMITS.get(name.rsplit(".", 1)[-1], LIMITS.get(group_of(name), (-np.inf, np.inf)))


@dataclass(frozen=True)
class Learning:
    """How learning went: the optimiser that ended it, its iterations and the bound before and after."""

    optimiser: str
    iterations: int
    first_bound: float
    bound: float


def initialise(prior: Prior, rows: Rows, seed: int) -> Prior:
    """Length-scales from the median distances of these rows, and mixing weights as in `initial_values`."""
    rng = np.random.default_rng(seed)
    typical = _median_distance(rows.x.numpy(), prior.per_dimension, rng)
    return prior.load(initial_values(prior, typical, rng))


def initial_values(prior: Prior, typical_distance: np.ndarray, rng: np.random.Generator) -> dict[str, Tensor]:
    """Length-scales around a typical distance, mixing weights that let every task lean on every latent."""
    B = prior.n_latents
    start: dict[str, Tensor] = {}
    if prior.projected is not None:
        size = (prior.projected, B * prior.dims)
        # Small, and in every direction: what the labels do not ask for stays small. Projections of spread one would keep
        # the noise of the inputs, which is all they are at first.
        entry = PROJECTION_START * prior.projected**0.5 / PROJECTION_STEP
        start["features.projection"] = torch.from_numpy(entry * rng.standard_normal(size))
    with_lengths = [b for b, kernel in enumerate(prior.kernels) if kernel.parameters]
    for i, b in enumerate(with_lengths):
        # Latents that start alike stay alike: 1, ½, 2, ¼, 4 ... times the typical distance.
        factor = 2.0 ** ((i + 1) // 2 * (-1) ** i)
        length = torch.from_numpy(typical_distance * factor)
        start |= prior.start(b, length)
    for i, (name, n_outputs) in enumerate(prior.outputs.items()):
        if n_outputs == 1:  # mostly its own latent, and some of all others
            weights = np.full((1, B), 0.4) + 0.05 * rng.standard_normal((1, B))
            weights[0, i % B] += 0.4 if B > 1 else 0.6
        else:  # classes differ by their directions
            weights = rng.standard_normal((n_outputs, B)) / np.sqrt(B)
        start[f"mixing.{name}"] = torch.from_numpy(weights)
    return start


def _median_distance(x: np.ndarray, per_dimension: bool, rng: np.random.Generator) -> np.ndarray:
    """The median distance of distinct inputs, or √D times that of each column; one where all are the same."""
    n, d = x.shape
    if n < 2:
        return np.ones(d if per_dimension else 1)
    i, j = rng.integers(n, size=(2, 4000))
    gap = np.abs(x[i] - x[j])
    gap = gap * np.sqrt(d) if per_dimension else np.sqrt((gap**2).sum(1, keepdims=True))
    medians = [np.median(column[column > 0]) if (column > 0).any() else 1.0 for column in gap.T]
    return np.asarray(medians)


class _Objective:
    """−bound and its gradient as functions of a flat vector, each value after a converged E-step."""

    def __init__(self, prior: Prior, build: Callable[[], Model], groups: Sequence[str]) -> None:
        self.prior, self.build = prior, build
        self.parameters = prior.group(*groups)
        self.start: tuple[Tensor, Tensor] | None = None
        if not self.parameters:
            raise ConfigError(f"nothing to learn in groups {list(groups)}", remedy="use learn=False to only infer")
        self.first: float | None = None
        self.best = (np.inf, self.vector())

    def vector(self) -> np.ndarray:
        return np.concatenate([p.detach().reshape(-1).numpy() for p in self.parameters.values()])

    def limits(self) -> list[tuple[float, float] | tuple[None, None]]:
        """A box for each number, widened to hold the value it starts from."""
        limits = []
        for name, value in self.parameters.items():
            low, high = limits_of(name)
            limits += [(min(low, start), max(high, start)) for start in value.detach().reshape(-1).tolist()]
        return limits

    def write(self, vector: np.ndarray) -> None:
        pieces = torch.from_numpy(vector.copy()).split([p.numel() for p in self.parameters.values()])
        shaped = zip(self.parameters.items(), pieces, strict=True)
        self.prior.load({name: piece.reshape(p.shape) for (name, p), piece in shaped})

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        self.write(vector)
        try:
            model = self.build()
            posterior = infer(model, start=self.start, tolerance=LEARNING_TOLERANCE, max_steps=LEARNING_STEPS)
            bound = model.bound(posterior.q)
            grads = torch.autograd.grad(-bound, list(self.parameters.values()), allow_unused=True)
        except NumericalError:
            return self.failed(vector)
        shaped = zip(grads, self.parameters.values(), strict=True)
        flat = [np.zeros(p.numel()) if g is None else g.reshape(-1).numpy() for g, p in shaped]
        value, gradient = -float(bound.detach()), np.concatenate(flat)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return self.failed(vector)
        self.start = posterior.marginals
        self.first = value if self.first is None else self.first
        if value < self.best[0]:
            self.best = (value, vector.copy())
        return value, gradient

    def failed(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Where the algebra breaks down: clearly worse than any value seen, so that the line search steps back, but not
        so much worse that its interpolation would leave no step at all."""
        best = self.best[0] if self.first is not None else 0.0
        return best + 10.0 * (1.0 + abs(best)), np.zeros_like(vector)


def maximise_bound(prior: Prior, build: Callable[[], Model], *, groups: Sequence[str], max_iterations: int) -> Learning:
    """Maximise the bound over the parameters of `groups`, in place: L-BFGS, and AdamW where that breaks down.

    `build` makes the model from the current values of `prior`.
    """
    objective = _Objective(prior, build, groups)
    from scipy.optimize import minimize  # a tenth of a second, for those who learn here

    result = minimize(
        objective,
        objective.vector(),
        jac=True,
        method="L-BFGS-B",
        bounds=objective.limits(),
        options={"maxiter": max_iterations, "ftol": 1e-9, "gtol": 1e-4},
    )
    optimiser, iterations = "L-BFGS", int(result.nit)
    if result.status == 2 and (objective.first is None or objective.best[0] >= objective.first):
        # No step of the line search went down.
        optimiser, iterations = "AdamW", _adamw(objective, max_iterations)
    if objective.first is None:
        remedy = "scale the features and targets, or pass learn=False with a prior of your own"
        raise NumericalError("the bound is not finite at any value tried", where="learning the prior", remedy=remedy)
    objective.write(objective.best[1])
    return Learning(optimiser, iterations, -objective.first, -objective.best[0])


def _adamw(objective: _Objective, max_iterations: int) -> int:
    """Small steps of fixed size along the gradient: slower, but no line search that could fail."""
    vector = torch.from_numpy(objective.best[1].copy()).requires_grad_()
    optimiser = torch.optim.AdamW([vector], lr=0.02, weight_decay=0.0)
    steps = 4 * max_iterations
    low, high = (torch.tensor(side, dtype=torch.float64) for side in zip(*objective.limits(), strict=True))
    for _ in range(steps):
        _, gradient = objective(vector.detach().numpy())
        vector.grad = torch.from_numpy(gradient)
        optimiser.step()
        with torch.no_grad():
            vector.clamp_(low, high)
    return steps
