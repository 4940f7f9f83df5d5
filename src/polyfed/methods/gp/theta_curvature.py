"""How sharply a client's bound falls off around Θ: its second derivatives, from differences of its gradients.

The gradient of a bound at its fixed point is that with the sites held fixed (the envelope theorem). Second derivatives are not:
where Θ moves, sites move too. So the E-step is repeated to its fixed point on both sides of Θ, and the gradients there are
subtracted. That is 2P gradients for P parameters, once in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyfed.gp import GROUPS, BatchStep
from polyfed.methods.gp.clients import Solver
from polyfed.methods.gp.model import GPModel
from polyfed.methods.messages import State

STEP = 1e-2  # of the logarithms and weights that Θ is made of: differences are good to its square
TOLERANCE, MOST_STEPS = 1e-10, 500  # of the E-step: what is left of it is divided by the step


def flat(values: Mapping[str, Tensor], names: Sequence[str], dims: int = 0) -> Tensor:
    """These parameters as one vector, behind so many leading dimensions."""
    return torch.cat([values[name].double().reshape(*values[name].shape[:dims], -1) for name in names], dim=-1)


def shaped(vector: Tensor, like: Mapping[str, Tensor], names: Sequence[str]) -> State:
    """A vector as these parameters; leading dimensions stay."""
    pieces = vector.split([like[name].numel() for name in names], dim=-1)
    return {
        name: piece.reshape((*vector.shape[:-1], *like[name].shape)) for name, piece in zip(names, pieces, strict=True)
    }


def hessians(
    model: GPModel,
    solver: Solver,
    values: State,
    names: Sequence[str],
    start: BatchStep,
) -> Tensor:
    """∂²L/∂Θ² of each client in the parameters named, (clients, P, P). `values` hold all clients in a leading dimension."""
    one = {name: values[name][0] for name in names}
    n = sum(value.numel() for value in one.values())

    def gradient(offset: Tensor, begin: BatchStep) -> tuple[Tensor, BatchStep]:
        moved = values | {name: values[name] + shift for name, shift in shaped(offset, one, names).items()}
        step = solver.step(
            model.prior.with_values(moved),
            start=begin,
            tolerance=TOLERANCE,
            max_steps=MOST_STEPS,
            groups=GROUPS,
        )
        return flat(step.gradient, names, dims=1), step

    _, centre = gradient(torch.zeros(n, dtype=torch.float64), start)
    columns = [
        (gradient(offset, centre)[0] - gradient(-offset, centre)[0]) / (2 * STEP)
        for offset in STEP * torch.eye(n, dtype=torch.float64)
    ]
    found = torch.stack(columns, dim=-1)
    return 0.5 * (found + found.mT)
