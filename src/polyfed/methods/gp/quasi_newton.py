"""The server's step by what earlier rounds say of the curvature (L-BFGS), where Adam would need many more rounds.

Between two rounds in which the same clients answered, gradients differ because Θ moved: y = g − g' for s = Θ' − Θ. The last
few such pairs give a step that is Newton's in the directions they span (Nocedal 1980,
doi:10.1090/S0025-5718-1980-0572855-7). In all others it is the gradient over what labels let expect of the curvature
(methods/gp/server_step.py): the weights of a task with little noise are held a hundred times as firmly as those of a
class, and pairs alone would need as many rounds as there are parameters to say so. Where gradients have always been small,
the curvature is too (a latent that no task needs): there what is expected is no more than the root of the gradient's mean
square over `rate`, as Adam has it. There is no line search: a round is one step, and no entry moves further than `reach`,
which is halved as Adam's rates are. Pairs that say that the bound curves upwards are left out, so that the step always goes
up.

Where other clients answer than in the round before, the difference of their gradients says more about the clients than about Θ.
Such a round is a step of Adam, so a federation that asks a part of its clients at random is learned by Adam.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import torch
from torch import Tensor

from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.states import Moments
from polyfed.methods.messages import State, scalar

LEAST_CURVATURE = 1e-8  # cosine of s and −y below which a pair says nothing
LEAST_SLOPE = 1e-3  # nats; below it Adam's diagonal would be noise over noise
CAUTION = 1.3  # times what is expected of the curvature


@dataclass(frozen=True)
class QuasiNewton:
    """Steps of L-BFGS where it has pairs to go by, and of `adam` elsewhere; to climb, as `Adam` does.

    Args:
        adam: what it starts with, and falls back on.
        memory: pairs that are kept.
        reach: the furthest that an entry moves in a round.
        rate: of the step along a gradient that is as large as ever.
    """

    adam: Adam
    memory: int = 20
    reach: float = 0.5
    rate: float = 0.3

    def start(self, values: Mapping[str, Tensor]) -> Moments:
        nothing = torch.zeros(self.memory, sum(value.numel() for value in values.values()), dtype=torch.float64)
        return replace(
            self.adam.start(values),
            pairs_s=nothing,
            pairs_y=nothing.clone(),
            last_value=nothing[0].clone(),
            last_slope=nothing[0].clone(),
            last_who=nothing.new_zeros(()),
        )

    def step(
        self,
        values: Mapping[str, Tensor],
        gradient: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        memory: Moments,
        share: float = 1.0,
        who: Iterable[str] = (),
    ) -> tuple[State, Moments, bool]:
        """New values, what is remembered, and whether pairs led the step.

        `expected` is the curvature of each entry, as far as one can know; `who` are the clients behind the gradient.
        """
        moved, after = self.adam.step(values, gradient, memory, share)
        names = sorted(values)  # states that were stored and read again are in another order
        x, g = flat(values, names), flat(gradient, names)
        S, Y = memory.pairs_s, memory.pairs_y
        digest = sha256("\0".join(sorted(who)).encode()).digest()[:6]  # states hold nothing but numbers
        number = scalar(int.from_bytes(digest, "big") + 1)
        same = bool(memory.last_who == number)
        if same:
            s, y = x - memory.last_value, memory.last_slope - g
            if s @ y > LEAST_CURVATURE * s.norm() * y.norm():
                S, Y = torch.cat([S[1:], s[None]]), torch.cat([Y[1:], y[None]])
        after = replace(after, pairs_s=S, pairs_y=Y, last_value=x, last_slope=g, last_who=number)
        if not same or not bool(Y[-1].any()):
            return moved, after, False
        squares = torch.cat([after.second[name].expand_as(values[name]).reshape(-1) for name in names]) / (
            1 - self.adam.beta2**after.steps
        )
        usual = (squares.sqrt() + LEAST_SLOPE) / self.rate
        diagonal = 1.0 / torch.minimum(CAUTION * flat(expected, names), usual)
        reach = self.reach
        if self.adam.schedule is not None and memory.passes is not None:
            reach = reach * float(self.adam.schedule.factor(memory.passes))
        step = direction(S, Y, g, diagonal)
        step = step * (reach / step.abs().max()).clamp_max(1.0)
        if not bool(torch.isfinite(step).all()):
            return moved, after, False
        return shaped(x + step, values, names), after, True


def direction(S: Tensor, Y: Tensor, g: Tensor, diagonal: Tensor) -> Tensor:
    """H g, where H is what BFGS makes of the pairs (oldest first; rows of zeros are none) and the diagonal.

    Only products with vectors are needed: Nocedal's two loops.
    """
    pairs = [(s, y, s @ y) for s, y in zip(S, Y, strict=True) if bool(y.any())]
    weights = []
    q = g.clone()
    for s, y, sy in reversed(pairs):
        weights.append((s @ q) / sy)
        q = q - weights[-1] * y
    q = q * diagonal
    for (s, y, sy), weight in zip(pairs, reversed(weights), strict=True):
        q = q + s * (weight - (y @ q) / sy)
    return q


def flat(values: Mapping[str, Tensor], names: Sequence[str], dims: int = 0) -> Tensor:
    """These parameters as one vector, behind `dims` leading dimensions."""
    return torch.cat([values[name].double().reshape(*values[name].shape[:dims], -1) for name in names], dim=-1)


def shaped(vector: Tensor, like: Mapping[str, Tensor], names: Sequence[str]) -> State:
    """A vector as these parameters; leading dimensions stay."""
    pieces = vector.split([like[name].numel() for name in names], dim=-1)
    return {
        name: piece.reshape((*vector.shape[:-1], *like[name].shape)) for name, piece in zip(names, pieces, strict=True)
    }
