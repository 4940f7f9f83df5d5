"""Adam as a function, for the parameters of one model or of many clients at once.

torch.optim keeps its state inside and one step count for all; a federation needs states that can be stored and sent, and
clients that have taken different numbers of steps. With one client it is torch's Adam to the last digits (a test).
Only groups that are named decay, apart from the gradient (AdamW): W, φ and σ² have no reason to be small.

The entries of a projection share one second moment. With one for each, inputs that say nothing would move as fast as those
that say it all, and with more inputs than labels the projection is soon made of their noise. So do those of a linear mean,
output by output: the gradients of a task with little noise are larger by far, and would leave the others no step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp import GROUPS
from polyfed.methods.options import check_number

State = dict[str, Tensor]

SHARE_A_MOMENT = {"features.projection": (-2, -1), "features.mean": (-2,)}  # name → the dimensions over which they do
LINEAR = ("features.projection", "features.mean", "features.mean_bias")  # features that are no network's


@dataclass(frozen=True)
class Adam:
    """Ascent along the gradient: the bound is to rise.

    `rates` gives the learning rate of a parameter by the first word of its name (its group), and may have one for projections
    and the prior mean, which are features too; `decays` gives the weight decay: a step shrinks a value by the product of both;
    `together` gives the dimensions over which entries of a parameter share their second moment.
    """

    rates: Mapping[str, float]
    decays: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: SHARE_A_MOMENT)
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def start(self, values: Mapping[str, Tensor], n_clients: int | None = None) -> State:
        """The state before the first step."""
        moments = {f"first.{name}": torch.zeros_like(v) for name, v in values.items()}
        moments |= {f"second.{name}": torch.zeros_like(self._squares(name, v)) for name, v in values.items()}
        return {"steps": torch.zeros(() if n_clients is None else n_clients, dtype=torch.float64), **moments}

    def step(self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor], state: State) -> tuple[State, State]:
        """New values and the next state."""
        steps = state["steps"] + 1
        moved: State = {}
        after: State = {"steps": steps}
        for name, value in values.items():
            g = gradient[name]
            first = self.beta1 * state[f"first.{name}"] + (1 - self.beta1) * g
            second = self.beta2 * state[f"second.{name}"] + (1 - self.beta2) * self._squares(name, g)
            after[f"first.{name}"], after[f"second.{name}"] = first, second
            t = steps.reshape(steps.shape + (1,) * (value.dim() - steps.dim()))
            group = name.partition(".")[0]
            rate = self.rates[group]
            if name in LINEAR:
                rate = self.rates.get("projection", rate)
            step = rate / (1 - self.beta1**t) * first / ((second / (1 - self.beta2**t)).sqrt() + self.eps)
            kept = value * (1 - rate * self.decays.get(group, 0.0))
            moved[name] = kept + step.to(value.dtype)  # a network may be of float32
        return moved, after

    def _squares(self, name: str, g: Tensor) -> Tensor:
        """The squares of a gradient, or their mean where entries share it."""
        shared = self.together.get(name)
        return g.square() if shared is None else g.square().mean(shared, keepdim=True)


def rates_of(given: float | Mapping[str, float], *, network: float = 1.0) -> dict[str, float]:
    """The learning rate of each group and of projections, checked, of a `learning_rate` as a user gives it.

    `network` is the part of one rate for all that the weights of a network get.

    >>> rates_of({"features": 0.5})
    {'features': 0.5, 'kernels': 0.1, 'mixing': 0.1, 'noise': 0.1, 'projection': 0.5}
    """
    known = (*GROUPS, "projection")
    if not isinstance(given, Mapping):
        check_number("learning_rate", given, above=0)
        given = dict.fromkeys(known, given) | {"features": given * network}
    for group, rate in given.items():
        if group not in known:
            raise ConfigError(f"learning_rate names {group!r}", remedy=nearest(group, known))
        check_number(f"learning_rate of {group}", rate, above=0)
    projection = {"projection": given["features"]} if "features" in given else {}
    return dict.fromkeys(known, 0.1) | {"features": 0.1 * network} | projection | dict(given)
