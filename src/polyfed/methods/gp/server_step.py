"""The server's step on the average bound in mode `gradient` (equ:agg, eq. 5): Adam's, or a quasi-Newton one.

A quasi-Newton step starts from how sharply the average bound is expected to bend in each parameter, by what a server knows
without asking: how many labels a client has of each task, and Θ itself.

A label with a site of precision h holds f to about 1/h. Where f = W g and g has variance φ₀, n labels of a task therefore hold
a weight W_ib with a precision of about n h φ₀_b. Part of it is left (`PART`), since g is not known either: between 0.05 and 0.5
of it on penguins and the synthetic study. The amplitude of a latent acts through its weights, ∂/∂log φ₀ = ½ Σ_i W_ib ∂/∂W_ib,
and lengths are taken to share what an amplitude has. The noise of n numbers is held by n/2, and a little more. To all of them
the prior of Θ adds its own. It is a diagonal to start from and no more: pairs of rounds correct it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from polyfed.gp import group_of, hyperprior
from polyfed.methods.gp.optimiser import Adam
from polyfed.methods.gp.quasi_newton import QuasiNewton
from polyfed.methods.gp.states import Moments, Server
from polyfed.methods.gp.theta_prior import asked, balanced, noise_slope, with_prior
from polyfed.methods.messages import ClientUpdate, State

PART = 0.15
OF_A_CLASS = 0.1  # h of a label without a noise: at most ¼, and less where classes are far apart
OF_NOISE = 0.75
LEAST = 1e-3  # nats, where neither labels nor a prior say anything


@dataclass(frozen=True)
class ServerStep:
    """Adam's step of Θ; or a quasi-Newton one, and of closed-form noise with it, unless each client has a noise of its own."""

    adam: Adam
    quasi_newton: bool
    moves_noise: bool

    def start(self, theta: State, pooled: State) -> Moments:
        return (
            QuasiNewton(self.adam).start(theta | self._noise(pooled)) if self.quasi_newton else self.adam.start(theta)
        )

    def step(
        self,
        server: Server,
        gradient: State,
        sums: Mapping[str, tuple[Tensor, Tensor]],
        updates: Mapping[str, ClientUpdate],
    ) -> tuple[State, Moments]:
        """Θ along the gradient of the average bound, and what the optimiser remembers; `sums` are of closed-form noise."""
        theta, noise, n = server.theta, self._noise(server.pooled), len(updates)
        if not self.quasi_newton:
            return self.adam.step(theta, with_prior(gradient, theta, server), server.optimiser, asked(server, n))
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


def expected_curvature(theta: State, pooled: State, server: Server, counts: Sequence[Mapping[str, int]]) -> State:
    """By name, of each entry of Θ; `counts` are the labels of the clients behind a gradient, `server` has the prior of Θ.

    `pooled` are those noises that are variances: h of their tasks is one over them.
    """
    labels = {task: fmean(one.get(task, 0) for one in counts) for task in {task for one in counts for task in one}}
    weights = {name: value for name, value in theta.items() if group_of(name) == "mixing"}
    found: State = {}
    for name, W in weights.items():
        task = name.removeprefix("mixing.")
        h = float((-pooled[f"noise.{task}"]).exp()) if f"noise.{task}" in pooled else OF_A_CLASS
        # Amplitudes that clients keep to themselves are not known here: one, as they start.
        logs = [theta.get(f"kernels.{b}.log_amplitude", W.new_zeros(())) for b in range(W.shape[-1])]
        found[name] = (PART * labels.get(task, 0.0) * h * torch.stack(logs).exp()).expand_as(W)
    for name, value in (theta | pooled).items():
        if group_of(name) == "kernels":
            b = int(name.split(".")[1])
            held = [(found[task][:, b] * W[:, b].square()).sum() for task, W in sorted(weights.items())]
            whole = 0.25 * torch.stack(held).sum() if held else value.new_zeros(())
            found[name] = (whole / value.numel()).expand_as(value)
        elif group_of(name) == "noise":
            found[name] = torch.full_like(value, OF_NOISE * labels.get(name.removeprefix("noise."), 0.0))
    n_clients = 1.0 if server.n_clients is None else float(server.n_clients)
    for name, value in found.items():
        own = hyperprior.precision(server.densities[name], value) / n_clients if name in server.densities else 0.0
        found[name] = (value + own).clamp_min(LEAST)
    return found
