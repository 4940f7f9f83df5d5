"""What all methods with networks share: the network of the tasks, minibatch SGD on a client, averaging on the server.

Parameters are flat dictionaries. A parameter that belongs to a task moves only in the steps that see a batch of that task,
and is averaged over the clients that have it: so tasks with trunks of their own (`task_mode="separate"`) learn exactly as
if each had a run to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec, LabelCodec
from polyfed.methods.base import Method, Predictor
from polyfed.methods.messages import ClientUpdate, State, labelled, part
from polyfed.methods.options import check_choice, check_number
from polyfed.methods.supervised import SUPERVISION, n_outputs
from polyfed.nets import ACTIVATIONS, Network
from polyfed.predictions import Predictions
from polyfed.seeds import Stream

TASK_MODES = ("shared", "separate")
BUFFERS = ("average", "local", "frozen")
# (parameters, their gradient) → the direction in which SGD goes instead
Correction = Callable[[State, State], State]
# (parameters, task → positions of a batch) → the loss that is minimised instead of the sum of the tasks' mean losses
Objective = Callable[[State, Mapping[str, np.ndarray]], Tensor]


@dataclass(frozen=True)
class Neural(Method):
    """Options of all methods with networks.

    Args:
        task_mode: `shared` (one trunk, a head for each task) or `separate` (a network for each task, as the paper).
        hidden: widths of the layers of the trunk.
        activation: between them.
        network: 'package.module:factory' instead of the MLP; the factory gets the number of features.
        bn_buffers: running statistics of batch norm: `average`, `local` or `frozen`.
        learning_rate: of SGD.
        local_epochs: passes over a client's data in a round.
        batch_size: labels of each task in a step.
        momentum: of SGD.
        weight_decay: of SGD.
        weighting: `samples` or `uniform`.
        server_rate: the server moves so much of the way to the average.
    """

    task_mode: str = "shared"
    hidden: Sequence[int] = (64,)
    activation: str = "relu"
    network: str | None = None
    bn_buffers: str = "average"
    learning_rate: float = 0.05
    local_epochs: int = 2
    batch_size: int = 32
    momentum: float = 0.0
    weight_decay: float = 0.0
    weighting: str = "samples"
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        check_choice("task_mode", self.task_mode, TASK_MODES)
        check_choice("activation", self.activation, list(ACTIVATIONS))
        check_choice("bn_buffers", self.bn_buffers, BUFFERS)
        check_choice("weighting", self.weighting, ("samples", "uniform"))
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("server_rate", self.server_rate, above=0)
        check_number("momentum", self.momentum, least=0)
        check_number("weight_decay", self.weight_decay, least=0)
        for option in ("local_epochs", "batch_size"):
            check_number(option, getattr(self, option), whole=True, least=1)
        for width in self.hidden:
            check_number("hidden", width, whole=True, least=1)

    # ---- the network ------------------------------------------------------------------------------------------

    def net(self, codecs: Mapping[str, LabelCodec], n_features: int) -> Network:
        outputs = tuple((task, n_outputs(codec)) for task, codec in codecs.items())
        separate = self.task_mode == "separate"
        return _network(outputs, n_features, tuple(self.hidden), self.activation, separate, self.network)

    def net_of(self, data: ClientData) -> Network:
        return self.net(data.codecs, data.n_features)

    def personal(self, net: Network) -> list[str]:
        """The names that stay on the client."""
        return net.buffers if self.bn_buffers == "local" else []

    def trainable(self, net: Network, values: Mapping[str, Tensor]) -> list[str]:
        buffers = set(net.buffers)
        return [name for name in values if name not in buffers]

    # ---- the server -------------------------------------------------------------------------------------------

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        net = self.net(spec.codecs, spec.n_features)
        values, personal = net.initial(stream.integer()), set(self.personal(net))
        shared = {name: value for name, value in values.items() if name not in personal}
        noisy = [task for task, codec in spec.codecs.items() if SUPERVISION[codec.task.kind].noise]
        noise = {task: torch.ones((), dtype=torch.float64) for task in noisy}
        kept = {name: value for name, value in values.items() if name in personal}
        tasks = {task: torch.zeros(()) for task in spec.codecs}
        return (
            labelled("theta", shared) | labelled("initial", kept) | labelled("noise", noise) | labelled("task", tasks)
        )

    def download(self, server: State, client: str) -> State:
        return part(server, "theta")

    def template(self, server: State) -> ClientUpdate:
        nothing = torch.zeros((), dtype=torch.float64)
        tasks = part(server, "task")
        return ClientUpdate(
            part(server, "theta"),
            dict.fromkeys(part(server, "noise"), (nothing, nothing)),
            counts=dict.fromkeys(tasks, 0),
            metrics={"loss": 0.0},
        )

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        sent = [updates[client] for client in sorted(updates)]
        moved = self.average(part(server, "theta"), sent)
        return {**server, **labelled("theta", moved), **labelled("noise", pooled_noise(server, sent))}

    def average(self, values: State, sent: Sequence[ClientUpdate]) -> State:
        """Each parameter plus the weighted mean of its changes; what nobody changed stays as it is, to the bit."""
        moved = {}
        for name, value in values.items():
            weights = self.weights(name, sent)
            change = torch.stack([update.arrays[name] for update in sent])
            if not value.is_floating_point():  # a counter of batch norm
                moved[name] = value + change.amax(0)
            elif weights.sum() > 0:
                shaped = weights.reshape(-1, *(1,) * value.dim()).to(value.dtype)
                moved[name] = value + self.server_rate * (shaped * change).sum(0) / shaped.sum()
            else:
                moved[name] = value
        return moved

    def weights(self, name: str, sent: Sequence[ClientUpdate]) -> Tensor:
        """How much each client counts for a parameter: by its labels of the tasks that use it, or once if it has any."""
        counts = [self._labels(name, update) for update in sent]
        if self.weighting == "uniform":
            counts = [float(count > 0) for count in counts]
        return torch.tensor(counts, dtype=torch.float64)

    def _labels(self, name: str, update: ClientUpdate) -> float:
        kind, _, rest = name.partition(".")
        if kind == "trunk" and self.task_mode == "shared":
            return float(sum(update.counts.values()))
        return float(list(update.counts.values())[int(rest.partition(".")[0])])

    # ---- a client -----------------------------------------------------------------------------------------------

    def start(self, data: ClientData, stream: Stream) -> State:
        net = self.net_of(data)
        values = net.initial(stream.integer())
        return labelled("personal", {name: values[name] for name in self.personal(net)})

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net = self.net_of(data)
        before = {**message, **part(state, "personal")}
        after, loss = self.train(net, before, data, stream, epochs=self.local_epochs)
        update = self.update({name: after[name] - before[name] for name in message}, net, after, data, loss)
        return {**state, **labelled("personal", {name: after[name] for name in self.personal(net)})}, update

    def update(self, arrays: State, net: Network, values: State, data: ClientData, loss: float) -> ClientUpdate:
        pooled = {}
        for task, codec in data.codecs.items():
            measure = SUPERVISION[codec.task.kind].noise
            if measure:
                total, count = _noise(net, values, data, task) if task in data.seen else (0.0, 0.0)
                pooled[task] = (_scalar(total), _scalar(count))
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
        steps: dict[str, int] | None = None,
        objective: Objective | None = None,
    ) -> tuple[State, float]:
        """Minibatch SGD on some parameters (all that can be trained, by default), and the mean loss of the last epoch.

        `correct` changes the gradient; `steps` is told how many steps each parameter took.
        """
        rate, names = rate or self.learning_rate, list(names or self.trainable(net, values))
        values = {name: value.clone() for name, value in values.items()}
        velocity: State = {}
        losses: list[float] = []
        for epoch in range(epochs):
            losses = []
            for batch in self.batches(net, data, stream, epoch):
                loss, gradient = self.gradient(net, values, data, batch, names, objective)
                losses.append(loss)
                gradient = correct(values, gradient) if correct else gradient
                for name, g in gradient.items():
                    g = g + self.weight_decay * values[name] if self.weight_decay else g
                    if self.momentum:
                        g = velocity[name] = self.momentum * velocity[name] + g if name in velocity else g
                    values[name] = values[name] - rate * g
                    if steps is not None:
                        steps[name] = steps.get(name, 0) + 1
        return values, float(np.mean(losses)) if losses else 0.0

    def batches(self, net: Network, data: ClientData, stream: Stream, epoch: int) -> Iterator[dict[str, np.ndarray]]:
        """task → positions among its labels, step by step; a task with fewer batches is done sooner."""
        rng = Stream(stream.seed, f"{stream.purpose} batches {epoch}", stream.round, stream.client).numpy()
        plan = {}
        for task, (at, _) in data.seen.items():
            order = rng.permutation(len(at))
            parts = [order[i : i + self.batch_size] for i in range(0, len(at), self.batch_size)]
            if net.has_batch_norm and len(parts) > 1 and len(parts[-1]) == 1:
                parts[-2:] = [np.concatenate(parts[-2:])]  # one sample has no batch statistics
            plan[task] = parts
        for k in range(max((len(parts) for parts in plan.values()), default=0)):
            yield {task: parts[k] for task, parts in plan.items() if k < len(parts)}

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
        live = {**values, **leaves}
        loss = torch.zeros((), dtype=torch.float64) if objective is None else objective(live, batch)
        for task, positions in batch.items() if objective is None else ():
            at, y = data.seen[task]
            x, labels = torch.from_numpy(data.x[at[positions]]), torch.from_numpy(y[positions])
            outputs = net(live, x, task, train=self.bn_buffers != "frozen")
            loss = loss + SUPERVISION[data.codecs[task].task.kind].loss(outputs, labels, data.codecs[task])
        for name in net.buffers:  # moved on by the forward pass
            values[name] = live[name]
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return loss.item(), {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}

    # ---- predictions ----------------------------------------------------------------------------------------------

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        values = {**part(server, "initial"), **part(server, "theta"), **part(state or {}, "personal")}
        return self.reader(server, values, data)

    def reader(self, server: State, values: State, data: ClientData) -> Predictor:
        """Predictions of these parameters; the noise is the client's own, or that of all where it has no labels."""
        net, pooled = self.net_of(data), part(server, "noise")
        noise: dict[str, float] = {}
        for task in pooled:
            total, count = _noise(net, values, data, task) if task in data.seen else (0.0, 0.0)
            noise[task] = total / count if count > 0 else float(pooled[task])

        def predict(x: np.ndarray) -> Predictions:
            with torch.no_grad():
                outputs = {task: net(values, torch.from_numpy(x), task).numpy() for task in data.tasks}
            return Predictions(
                {
                    task: SUPERVISION[codec.task.kind].predict(outputs[task], noise.get(task, 0.0), codec)
                    for task, codec in data.codecs.items()
                }
            )

        return predict


def pooled_noise(server: State, sent: Sequence[ClientUpdate]) -> State:
    """The noise of each task over the labels of all clients."""
    pooled = {}
    for task, before in part(server, "noise").items():
        total, count = (sum(update.pooled[task][i] for update in sent) for i in (0, 1))
        pooled[task] = total / count if count > 0 else before
    return pooled


def _noise(net: Network, values: State, data: ClientData, task: str) -> tuple[float, float]:
    at, y = data.seen[task]
    measure = SUPERVISION[data.codecs[task].task.kind].noise
    assert measure is not None
    with torch.no_grad():
        outputs = net(values, torch.from_numpy(data.x[at]), task)
    return measure(outputs, torch.from_numpy(y), data.codecs[task])


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@lru_cache(maxsize=64)
def _network(
    outputs: tuple[tuple[str, int], ...],
    n_features: int,
    hidden: tuple[int, ...],
    activation: str,
    separate: bool,
    factory: str | None,
) -> Network:
    return Network(dict(outputs), n_features, hidden=hidden, activation=activation, separate=separate, factory=factory)
