"""pFedMe: each client's own parameters θ_i are tied to the shared w by a quadratic, F_i(w) = min_θ f_i(θ) + λ/2 ‖θ − w‖².

In a round, `local_steps` times: some SGD steps on f_i + λ/2 ‖θ − w_i‖² with one batch, then w_i ← w_i − η λ (w_i − θ). The
client keeps θ_i, which is what it predicts with; w_i is sent. θ_i and w_i are different arrays, always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import torch

from polyfed.data import ClientData
from polyfed.errors import ConfigError
from polyfed.methods.base import Predictor
from polyfed.methods.messages import ClientUpdate, State, labelled, part
from polyfed.methods.neural import Neural
from polyfed.methods.options import check_number
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class PFedMe(Neural):
    """Options as of `Neural` (`learning_rate` is η, of w; `server_rate` is β; `local_epochs` is not used), and

    Args:
        penalty: λ, how strongly a client's own parameters are tied to the shared ones.
        personal_rate: of the steps on θ; needs personal_rate · (curvature + λ) < 2.
        inner_steps: steps on θ for each batch.
        local_steps: batches in a round, one for each step of w.
    """

    name: ClassVar[str] = "pfedme"
    summary: ClassVar[str] = "a network of each client's own, tied to the shared one by a quadratic"

    penalty: float = 15.0
    personal_rate: float = 0.05
    inner_steps: int = 5
    local_steps: int = 20
    learning_rate: float = 0.005
    batch_size: int = 20
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum:
            raise ConfigError(f"momentum is {self.momentum!r}", remedy="leave it at 0: pFedMe's steps are plain")
        check_number("penalty", self.penalty, least=0)
        check_number("personal_rate", self.personal_rate, above=0)
        for option in ("inner_steps", "local_steps"):
            check_number(option, getattr(self, option), whole=True, least=1)

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net = self.net_of(data)
        before = {**message, **part(state, "personal")}
        w = {name: value.clone() for name, value in before.items()}
        names = self.trainable(net, w)
        theta, loss = dict(w), 0.0
        for _, batch in zip(range(self.local_steps), self._endless(net, data, stream), strict=False):
            theta, loss = self.near(net, theta, w, data, batch, self.inner_steps)
            for name in names:
                w[name] = w[name] - self.learning_rate * self.penalty * (w[name] - theta[name])
        for name in net.buffers:
            w[name] = theta[name]
        arrays = {name: w[name] - before[name] for name in message}
        kept = labelled("personal", {name: w[name] for name in self.personal(net)})
        own = labelled("theta", {name: value.clone() for name, value in theta.items()})
        return {**state, **kept, **own}, self.update(arrays, net, theta, data, loss)

    def near(
        self, net: Network, theta: State, w: State, data: ClientData, batch: dict[str, np.ndarray], steps: int
    ) -> tuple[State, float]:
        """Steps from θ on the loss of a batch plus λ/2 ‖θ − w‖²."""
        theta, loss, names = dict(theta), 0.0, self.trainable(net, theta)
        for _ in range(steps):
            loss, gradient = self.gradient(net, theta, data, batch, names)
            for name in names:
                slope = self.penalty * (theta[name] - w[name])
                slope = slope + gradient[name] if name in gradient else slope
                slope = slope + self.weight_decay * theta[name] if self.weight_decay else slope
                theta[name] = torch.sub(theta[name], slope, alpha=self.personal_rate)
        return theta, loss

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        if state is None:
            return super().predictor(server, None, data)
        theta = part(state, "theta")
        if not theta:  # never sampled, or new: its own parameters are what the definition says, found here
            theta = part(self.join(server, data, Stream(0, "join")), "theta")
        return self.reader(server, theta, data)

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        w = self.values(server, None)
        everything = {task: np.arange(len(at)) for task, (at, _) in data.seen.items()}
        net, state = self.net_of(data), super().join(server, data, stream)
        if not data.n_labels:
            return state | labelled("theta", w)
        theta, _ = self.near(net, w, w, data, everything, self.inner_steps * self.local_steps)
        return state | labelled("theta", theta)

    def _endless(self, net: Network, data: ClientData, stream: Stream) -> Iterator[dict[str, np.ndarray]]:
        for epoch in count() if data.n_labels else ():
            yield from self.batches(net, data, stream, epoch)
