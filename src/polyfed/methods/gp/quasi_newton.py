"""The server's step by what earlier rounds say of the curvature (L-BFGS), where Adam would need many more rounds.

Between two rounds in which the same clients answered, gradients differ because Θ moved: y = g − g' for s = Θ' − Θ. The last
few such pairs give a step that is Newton's in the directions they span and, in all others, along the gradient over the root
of its mean square, as Adam's (Nocedal 1980, with that diagonal in place of a multiple of the identity). There is no line
search: a round is one step, and no entry moves further than `reach`. Pairs that say that the bound curves upwards are left
out, so that the step always goes up.

Where other clients answer than in the round before, the difference of their gradients says more about the clients than about Θ.
Such a round is a step of Adam, so a federation that asks a part of its clients at random is learned by Adam.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.messages import State

LEAST_CURVATURE = 1e-8  # cosine of s and −y below which a pair says nothing
LEAST_SLOPE = 1e-3  # nats; below it Adam's diagonal would be noise over noise


@dataclass(frozen=True)
class QuasiNewton:
    """Steps of L-BFGS where it has pairs to go by, and of `adam` elsewhere; to climb, as `Adam` does.

    Args:
        adam: what it starts with, and falls back on.
        memory: pairs that are kept.
        reach: the furthest that an entry moves in a round.
    """

    adam: Adam
    memory: int = 10
    reach: float = 0.5

    def start(self, values: Mapping[str, Tensor]) -> State:
        """The state before the first step."""
        width = sum(value.numel() for value in values.values())
        nothing = torch.zeros(self.memory, width, dtype=torch.float64)
        return self.adam.start(values) | {
            "pairs.s": nothing,
            "pairs.y": nothing.clone(),
            "last.value": nothing[0].clone(),
            "last.slope": nothing[0].clone(),
            "last.who": torch.zeros((), dtype=torch.float64),
        }

    def step(
        self,
        values: Mapping[str, Tensor],
        gradient: Mapping[str, Tensor],
        state: State,
        share: float = 1.0,
        who: Iterable[str] = (),
    ) -> tuple[State, State, bool]:
        """New values, the next state, and whether pairs led the step; `who` are the clients behind the gradient."""
        moved, after = self.adam.step(values, gradient, state, share)
        x, g = _flat(values, values), _flat(gradient, values)
        S, Y, number = state["pairs.s"], state["pairs.y"], _number_of(who)
        same = bool(state["last.who"] == number)
        if same:
            s, y = x - state["last.value"], state["last.slope"] - g
            if s @ y > LEAST_CURVATURE * s.norm() * y.norm():
                S, Y = torch.cat([S[1:], s[None]]), torch.cat([Y[1:], y[None]])
        after |= {"pairs.s": S, "pairs.y": Y, "last.value": x, "last.slope": g, "last.who": number}
        if not same or not bool(Y[-1].any()):
            return moved, after, False
        squares = torch.cat(
            [after[f"second.{name}"].expand_as(value).reshape(-1) for name, value in values.items()]
        ) / (1 - self.adam.beta2 ** after["steps"])
        step = direction(S, Y, g, 1.0 / (squares.sqrt() + LEAST_SLOPE))
        step = step * (self.reach / step.abs().max()).clamp_max(1.0)
        if not bool(torch.isfinite(step).all()):
            return moved, after, False
        pieces = (x + step).split([value.numel() for value in values.values()])
        shaped = zip(values.items(), pieces, strict=True)
        return {name: piece.reshape(value.shape) for (name, value), piece in shaped}, after, True


def direction(S: Tensor, Y: Tensor, g: Tensor, diagonal: Tensor) -> Tensor:
    """H g, where H is what BFGS makes of the pairs (oldest first; rows of zeros are none) and a multiple of the diagonal.

    Only products with vectors are needed: Nocedal's two loops.
    """
    pairs = [(s, y, s @ y) for s, y in zip(S, Y, strict=True) if bool(y.any())]
    weights = []
    q = g.clone()
    for s, y, sy in reversed(pairs):
        weights.append((s @ q) / sy)
        q = q - weights[-1] * y
    _, y, sy = pairs[-1]
    q = q * diagonal * (sy / (y @ (diagonal * y)))
    for (s, y, sy), weight in zip(pairs, reversed(weights), strict=True):
        q = q + s * (weight - (y @ q) / sy)
    return q


def _flat(values: Mapping[str, Tensor], order: Iterable[str]) -> Tensor:
    return torch.cat([values[name].reshape(-1).to(torch.float64) for name in order])


def _number_of(who: Iterable[str]) -> Tensor:
    """A number for a set of clients; states hold nothing but numbers."""
    names = "\0".join(sorted(who)).encode()
    return torch.tensor(float(int.from_bytes(sha256(names).digest()[:6], "big") + 1), dtype=torch.float64)
