"""Adam as a function, for the parameters of one model or of many clients at once.

Kingma, Ba: "Adam: A Method for Stochastic Optimization", ICLR 2015, arXiv:1412.6980; with decay apart, Loshchilov, Hutter:
"Decoupled Weight Decay Regularization", ICLR 2019, arXiv:1711.05101.

torch.optim keeps its state inside and one step count for all; a federation needs states that can be stored and sent, and
clients that have taken different numbers of steps. With one client it is torch's Adam to the last digits (a test).
Only groups that are named decay, apart from the gradient (AdamW): W, φ and σ² have no reason to be small.

The entries of a projection share one second moment. With one for each, inputs that say nothing would move as fast as those
that say it all, and with more inputs than labels the projection is soon made of their noise. So do those of a linear mean,
output by output: the gradients of a task with little noise are larger by far, and would leave the others no step.

Rates may be halved as a run goes on. When, follows from how often every client has been asked so far and from nothing else:
a run that is resumed for more rounds goes on as if it had been planned so, and with a quarter of the clients in a round the
schedule takes four times as many rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from polyfed.errors import ConfigError, nearest
from polyfed.gp import GROUPS
from polyfed.methods.gp.states import Moments
from polyfed.methods.messages import State
from polyfed.methods.options import check_number

SHARE_A_MOMENT = {"features.projection": (-2, -1), "features.mean": (-2,)}  # name → the dimensions over which they do
LEAST = 0.05  # of a rate that is halved again and again: data that come later must still be able to move Θ
LINEAR = ("features.projection", "features.mean", "features.mean_bias")  # features that are no network's


@dataclass(frozen=True)
class Halving:
    """Rates are halved every `every` passes over the clients after the first `after`, down to `least` of what they were.

    >>> Halving(every=5, after=10, least=0.1).factor(torch.tensor([0.0, 14.9, 15.0, 20.0, 99.0]))
    tensor([1.0000, 1.0000, 0.5000, 0.2500, 0.1000])
    """

    every: float
    after: float = 10.0
    least: float = 0.0

    def factor(self, passes: Tensor) -> Tensor:
        # Shares of clients add up to passes but for their last digits.
        halvings = ((passes - self.after) / self.every + 1e-9).floor().clamp_min(0.0)
        return (0.5**halvings).clamp_min(self.least)


@dataclass(frozen=True)
class Adam:
    """Ascent along the gradient: the bound is to rise.

    `rates` gives the learning rate of a parameter by the first word of its name (its group), and may have one for projections
    and the prior mean, which are features too; `decays` gives the weight decay: a step shrinks a value by the product of both;
    `together` gives the dimensions over which entries of a parameter share their second moment; `schedule` shortens the steps.
    """

    rates: Mapping[str, float]
    decays: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: SHARE_A_MOMENT)
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    schedule: Halving | None = None

    def start(self, values: Mapping[str, Tensor], n_clients: int | None = None) -> Moments:
        steps = torch.zeros(() if n_clients is None else n_clients, dtype=torch.float64)
        return Moments(
            steps,
            {name: torch.zeros_like(value) for name, value in values.items()},
            {name: torch.zeros_like(self._squares(name, value)) for name, value in values.items()},
            None if self.schedule is None else steps.clone(),
        )

    def step(
        self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor], memory: Moments, share: float = 1.0
    ) -> tuple[State, Moments]:
        """New values and what is remembered; `share` of those whose gradients there are stand behind this one."""
        steps, passes, factor = memory.steps + 1, memory.passes, None
        if self.schedule is not None and passes is not None:
            passes, factor = passes + share, self.schedule.factor(passes)
        moved, firsts, seconds = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
        for name, value in values.items():
            g = gradient[name]
            first = firsts[name] = self.beta1 * memory.first[name] + (1 - self.beta1) * g
            second = seconds[name] = self.beta2 * memory.second[name] + (1 - self.beta2) * self._squares(name, g)
            more = steps.shape + (1,) * (value.dim() - steps.dim())
            t = steps.reshape(more)
            group = name.partition(".")[0]
            rate = self.rates[group]
            if name in LINEAR:
                rate = self.rates.get("projection", rate)
            if factor is not None:
                rate = rate * factor.reshape(more)
            step = rate / (1 - self.beta1**t) * first / ((second / (1 - self.beta2**t)).sqrt() + self.eps)
            kept = value * (1 - rate * self.decays.get(group, 0.0))
            moved[name] = kept + step.to(value.dtype)  # a network may be of float32
        return moved, replace(memory, steps=steps, first=firsts, second=seconds, passes=passes)

    def _squares(self, name: str, g: Tensor) -> Tensor:
        """The squares of a gradient, or their mean where entries share it."""
        shared = self.together.get(name)
        return g.square() if shared is None else g.square().mean(shared, keepdim=True)


def checked_betas(given: Sequence[float]) -> tuple[float, float]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise ConfigError(f"betas are {given!r}", remedy="give two numbers, such as [0.9, 0.999]")
    for beta in given:
        check_number("one of betas", beta, least=0, below=1)
    return float(given[0]), float(given[1])


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
