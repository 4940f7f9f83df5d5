"""pFedMe: each client's own parameters θ_i are tied to the shared w by a quadratic, F_i(w) = min_θ f_i(θ) + λ/2 ‖θ − w‖².

Dinh, Tran, Nguyen: "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, arXiv:2006.08848.

In a round, `local_steps` times: some SGD steps on f_i + λ/2 ‖θ − w_i‖² with one batch, then w_i ← w_i − η λ (w_i − θ). The
client keeps θ_i, which is what it predicts with; w_i is sent. θ_i and w_i are different arrays, always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.errors import ConfigError
from polyfed.methods.base import Job
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix
from polyfed.methods.neural.cohorts import Cohort, Positions, TrainedSideBySide
from polyfed.methods.neural.own_networks import OwnNetwork
from polyfed.methods.options import check_numbers
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class PFedMe(TrainedSideBySide, OwnNetwork):
    """Options as of `Neural` (`learning_rate` is η, of w; `server_rate` is β; `local_epochs` is not used), and

    Args:
        penalty: λ, how strongly a client's own parameters are tied to the shared ones.
        personal_rate: of the steps on θ; needs personal_rate · (curvature + λ) < 2.
        inner_steps: steps on θ for each batch.
        local_steps: batches in a round, one for each step of w.
    """

    name: ClassVar[str] = "pfedme"
    summary: ClassVar[str] = "a network of each client's own, tied to the shared one by a quadratic"
    kept_as: ClassVar[str] = "theta"

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
        check_numbers(self, "penalty", least=0)
        check_numbers(self, "personal_rate", above=0)
        check_numbers(self, "inner_steps", "local_steps", whole=True, least=1)

    def train_cohort(self, jobs: Sequence[Job]) -> list[tuple[State, ClientUpdate]]:
        net = self.net_of(jobs[0].data)
        cohort = Cohort(net, [job.data for job in jobs], train=self.bn_buffers != "frozen")
        before = [{**job.message, **strip_prefix(job.state, "personal")} for job in jobs]
        w = cohort.stack(before)
        names, theta, losses = self.trainable(net, w), dict(w), torch.zeros(len(jobs))
        plans = zip(*(self._endless(net, job.data, job.stream) for job in jobs), strict=False)
        for _, positions in zip(range(self.local_steps), plans, strict=False):
            theta, losses = self.near(cohort, theta, w, positions, self.inner_steps)
            for name in names:
                w[name] = w[name] - self.learning_rate * self.penalty * (w[name] - theta[name])
        for name in net.buffers:
            w[name] = theta[name]
        found = []
        each = zip(jobs, before, cohort.unstack(w), cohort.unstack(theta), losses.tolist(), strict=True)
        for job, received, moved, near, loss in each:
            arrays = {name: moved[name] - received[name] for name in job.message}
            own = with_prefix("theta", {name: value.clone() for name, value in near.items()})
            state = {**job.state, **self.kept(net, moved), **own}
            found.append((state, self.update(arrays, net, near, job.data, loss)))
        return found

    def near(
        self, cohort: Cohort, theta: State, w: State, positions: Sequence[Positions], steps: int
    ) -> tuple[State, Tensor]:
        """Steps from θ on the loss of a batch plus λ/2 ‖θ − w‖², of all clients of a cohort."""
        theta, losses, names = dict(theta), torch.zeros(len(positions)), self.trainable(cohort.net, theta)
        batch = cohort.batch(positions)
        for _ in range(steps):
            losses, gradient = cohort.gradient(theta, batch, names)
            for name in names:
                slope = self.penalty * (theta[name] - w[name])
                slope = slope + gradient[name] if name in gradient else slope
                slope = slope + self.weight_decay * theta[name] if self.weight_decay else slope
                theta[name] = torch.sub(theta[name], slope, alpha=self.personal_rate)
        return theta, losses

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        w = self.values(server, None)
        everything = {task: np.arange(len(at)) for task, (at, _) in data.labels.items()}
        net, state = self.net_of(data), super().join(server, data, stream)
        if not data.n_labels:
            return state | with_prefix("theta", w)
        cohort = Cohort(net, [data], train=self.bn_buffers != "frozen")
        start = cohort.stack([w])
        theta, _ = self.near(cohort, start, start, [everything], self.inner_steps * self.local_steps)
        return state | with_prefix("theta", cohort.unstack(theta)[0])

    def _endless(self, net: Network, data: ClientData, stream: Stream) -> Iterator[dict[str, np.ndarray]]:
        for epoch in count() if data.n_labels else ():
            yield from self.batches(net, data, stream, epoch)
