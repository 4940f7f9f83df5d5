"""Methods that train networks by minibatch SGD on the losses of the tasks, and read predictions from their outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.methods.base import Predictor
from polyfed.methods.messages import NOTHING, ClientUpdate, State, scalar, scalars, strip_prefix, with_prefix
from polyfed.methods.neural.shared_network import SharedNetwork
from polyfed.methods.supervised import rows_of, supervision_of
from polyfed.nets import Network
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

# (parameters, their gradient) → the direction in which SGD goes instead
Correction = Callable[[State, State], State]
# (parameters, task, positions among its labels) → the loss that is minimised instead of their mean loss
Objective = Callable[[State, str, np.ndarray], Tensor]


@dataclass(frozen=True)
class Neural(SharedNetwork):
    """Options as of `SharedNetwork`. The noise of tasks that have one is pooled over the residuals of all clients."""

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        return super().init(spec, stream) | noise_to_pool(spec, 1.0)

    def template(self, server: State) -> ClientUpdate:
        return replace(super().template(server), pooled=dict.fromkeys(strip_prefix(server, "noise"), NOTHING))

    def counted_tasks(self, server: State, name: str) -> Sequence[str] | None:
        return tasks_of_noise(server, name)

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        sent = [updates[client] for client in sorted(updates)]
        return super().aggregate(server, updates) | with_prefix("noise", pooled_noise(server, sent))

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net = self.net_of(data)
        before = {**message, **strip_prefix(state, "personal")}
        after, loss = self.train(net, before, data, stream, epochs=self.local_epochs)
        arrays = {name: after[name] - before[name] for name in message}
        update = self.update(arrays, net, self.served(net, after), data, loss)
        return {**state, **self.kept(net, after)}, update

    def served(self, net: Network, values: State) -> State:
        """The parameters that predictions are read with, of those that are trained."""
        return values

    def update(self, arrays: State, net: Network, values: State, data: ClientData, loss: float) -> ClientUpdate:
        noisy = [task for task, codec in data.codecs.items() if supervision_of(codec).noise]
        pooled = {task: scalars(*_noise(net, values, data, task)) for task in noisy}
        return ClientUpdate(arrays, pooled, float(data.n_labels), data.counts(), {"loss": loss})

    def train(
        self,
        net: Network,
        values: State,
        data: ClientData,
        stream: Stream,
        *,
        epochs: int,
        names: Sequence[str] | None = None,
        rate: float | None = None,
        correct: Correction | None = None,
        objective: Objective | None = None,
    ) -> tuple[State, float]:
        """Minibatch SGD on some parameters (all that can be trained, by default), and the mean loss of the last epoch."""
        names = list(self.trainable(net, values) if names is None else names)
        values = {name: value.clone() for name, value in values.items()}
        velocity: State = {}
        losses: list[float] = []
        for epoch in range(epochs):
            losses = []
            for batch in self.batches(net, data, stream, epoch):
                loss, gradient = self.gradient(net, values, data, batch, names, objective)
                losses.append(loss)
                self.descend(values, correct(values, gradient) if correct else gradient, velocity, rate)
        return values, float(np.mean(losses)) if losses else 0.0

    def gradient(
        self,
        net: Network,
        values: State,
        data: ClientData,
        batch: Mapping[str, np.ndarray],
        names: Sequence[str],
        objective: Objective | None = None,
    ) -> tuple[float, State]:
        """The sum of the tasks' mean losses on a batch, and its gradient in the parameters that it touches."""
        leaves = {name: values[name].detach().requires_grad_() for name in names}
        # Copies of the running statistics: a forward pass moves them in place, and they may be the server's.
        live = {**values, **leaves, **{name: values[name].clone() for name in net.buffers}}
        of_task = objective or partial(self.loss, net, data)
        loss = sum((of_task(live, task, positions) for task, positions in batch.items()), scalar(0.0))
        for name in net.buffers:  # moved on by the forward pass
            values[name] = live[name]
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return loss.item(), {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}

    def loss(
        self, net: Network, data: ClientData, live: State, task: str, positions: np.ndarray, *, train: bool = True
    ) -> Tensor:
        """The mean loss of some labels of a task; without `train`, running statistics stand still."""
        rows = rows_of(data, task, positions)
        return rows.loss(net(live, rows.x, task, train=train and self.bn_buffers != "frozen"))

    def train_personal(self, server: State, state: State, data: ClientData, stream: Stream, epochs: int) -> State:
        """The state of a client after training what is its own, on top of what the server has."""
        if not data.n_labels or not epochs:
            return state
        net, own = self.net_of(data), strip_prefix(state, "personal")
        mine = self.trainable(net, own)
        trained, _ = self.train(net, {**strip_prefix(server, "theta"), **own}, data, stream, epochs=epochs, names=mine)
        return state | with_prefix("personal", {name: trained[name] for name in mine})

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        return self.reader(server, self.served(self.net_of(data), self.values(server, state)), data)

    def reader(self, server: State, values: State, data: ClientData) -> Predictor:
        """Predictions of these parameters; the noise is the client's own, or that of all where it has no labels."""
        net, noise = self.net_of(data), {}
        for task, pooled in strip_prefix(server, "noise").items():
            total, count = _noise(net, values, data, task)
            noise[task] = total / count if count > 0 else float(pooled)

        def predict(x: np.ndarray) -> Predictions:
            found = {}
            for task, codec in data.codecs.items():
                with torch.no_grad():
                    outputs = net(values, torch.from_numpy(x), task).numpy()
                found[task] = supervision_of(codec).predict(outputs, noise.get(task, 0.0), codec)
            return Predictions(found)

        return predict


class BodyTrained(Neural):
    """Heads never leave their client, and no round moves them."""

    def personal(self, net: Network) -> list[str]:
        return [*net.heads, *super().personal(net)]

    def trainable(self, net: Network, values: Mapping[str, Tensor]) -> list[str]:
        heads = set(net.heads)
        return [name for name in super().trainable(net, values) if name not in heads]


def noise_to_pool(spec: FederationSpec, start: float) -> State:
    """What the server keeps of the noise of tasks that have one, and a mark at those whose count is no number of labels."""
    kinds = {task: supervision_of(codec) for task, codec in spec.codecs.items()}
    noise = {task: scalar(start) for task, kind in kinds.items() if kind.noise}
    marks = {task: scalar(1.0) for task in noise if not kinds[task].counts_labels}
    return with_prefix("noise", noise) | with_prefix("uncounted", marks)


def tasks_of_noise(server: State, name: str) -> Sequence[str] | None:
    """`Method.counted_tasks` of pooled noise."""
    return None if f"uncounted/{name}" in server else [name]


def pooled_noise(server: State, sent: Sequence[ClientUpdate]) -> State:
    """The noise of each task over the labels of all clients."""
    pooled = {}
    for task, before in strip_prefix(server, "noise").items():
        total, count = (sum(update.pooled[task][i] for update in sent) for i in (0, 1))
        pooled[task] = total / count if count > 0 else before
    return pooled


def _noise(net: Network, values: State, data: ClientData, task: str) -> tuple[float, float]:
    if task not in data.labels:
        return 0.0, 0.0
    rows = rows_of(data, task)
    with torch.no_grad():
        return rows.spread(net(values, rows.x, task))
