"""The server's step on the average bound in mode `gradient` (equ:agg, eq. 5): Adam's, or a quasi-Newton one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from polyfed.methods.gp.expected_curvature import expected_curvature
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.quasi_newton import QuasiNewton
from polyfed.methods.gp.states import Moments, Server
from polyfed.methods.gp.theta_prior import asked, balanced, noise_slope, with_prior
from polyfed.methods.messages import ClientUpdate, State


@dataclass(frozen=True)
class ServerStep:
    """Adam's step of Θ."""

    adam: Adam

    def start(self, theta: State, pooled: State) -> Moments:
        """What the optimiser remembers before the first round."""
        return self.adam.start(theta)

    def step(
        self,
        server: Server,
        gradient: State,
        sums: Mapping[str, tuple[Tensor, Tensor]],
        updates: Mapping[str, ClientUpdate],
    ) -> tuple[State, Moments]:
        """Θ along the gradient of the average bound, and what the optimiser remembers; `sums` are of closed-form noise."""
        whole = with_prior(gradient, server.theta, server)
        return self.adam.step(server.theta, whole, server.optimiser, asked(server, len(updates)))


@dataclass(frozen=True)
class QuasiNewtonStep(ServerStep):
    """A quasi-Newton step of Θ, and of closed-form noise with it, unless each client has a noise of its own."""

    moves_noise: bool

    def start(self, theta: State, pooled: State) -> Moments:
        return QuasiNewton(self.adam).start(theta | self._noise(pooled))

    def step(
        self,
        server: Server,
        gradient: State,
        sums: Mapping[str, tuple[Tensor, Tensor]],
        updates: Mapping[str, ClientUpdate],
    ) -> tuple[State, Moments]:
        theta, noise, n = server.theta, self._noise(server.pooled), len(updates)
        slopes = {name: noise_slope(value, *sums[name], n) for name, value in noise.items()}
        whole = with_prior(gradient | slopes, theta | noise, server)
        expected = expected_curvature(theta, noise, server, [update.counts for update in updates.values()])
        share = asked(server, n)
        moved, memory, led = QuasiNewton(self.adam).step(
            theta | noise, whole, expected, server.optimiser, share, updates
        )
        moved = balanced(moved, server.densities)
        return {name: value for name, value in moved.items() if led or name in theta}, memory

    def _noise(self, pooled: State) -> State:
        return pooled if self.moves_noise else {}
