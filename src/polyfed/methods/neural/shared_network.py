"""A network that the server averages and clients train: its options, its parameters, and their way to and fro.

Parameters are flat dictionaries. A parameter that belongs to a task moves only in the steps that see a batch of that task,
and is averaged over the clients that have it: so tasks with trunks of their own (`task_mode="separate"`) learn exactly as
if each had a run to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec, LabelCodec
from polyfed.errors import ConfigError
from polyfed.methods.base import Method
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, under, with_prefix
from polyfed.methods.options import check_choice, check_number, check_numbers
from polyfed.methods.supervised import n_outputs
from polyfed.nets import ACTIVATIONS, Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class SharedNetwork(Method):
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
        server_rate: the part of the way to the average that the server moves.
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
        check_choice("task_mode", self.task_mode, ("shared", "separate"))
        check_choice("activation", self.activation, list(ACTIVATIONS))
        check_choice("bn_buffers", self.bn_buffers, ("average", "local", "frozen"))
        check_choice("weighting", self.weighting, ("samples", "uniform"))
        check_numbers(self, "learning_rate", "server_rate", above=0)
        check_numbers(self, "momentum", "weight_decay", least=0)
        check_numbers(self, "local_epochs", "batch_size", whole=True, least=1)
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence):
            raise ConfigError(f"hidden is {self.hidden!r}", remedy="give the widths of the layers, such as [64, 32]")
        for width in self.hidden:
            check_number("hidden", width, whole=True, least=1)

    @property
    def takes_weights(self) -> bool:
        return True

    def net_of(self, data: ClientData | FederationSpec) -> Network:
        made_of = data.codecs, data.n_features, self.hidden, self.network
        return network_of(*made_of, activation=self.activation, separate=self.task_mode == "separate")

    def initial(self, net: Network, codecs: Mapping[str, LabelCodec], seed: int) -> State:
        """All parameters to start from, shared and personal."""
        return net.initial(seed)

    def personal(self, net: Network) -> list[str]:
        """The names that stay on the client."""
        return net.buffers if self.bn_buffers == "local" else []

    def trainable(self, net: Network, values: Mapping[str, Tensor]) -> list[str]:
        """What SGD moves: not the running statistics, nor what the factory of the network froze."""
        fixed = {*net.buffers, *net.frozen}
        return [name for name in values if name not in fixed]

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        net = self.net_of(spec)
        values, personal = self.initial(net, spec.codecs, stream.integer()), set(self.personal(net))
        shared = {name: value for name, value in values.items() if name not in personal}
        kept = {name: value for name, value in values.items() if name in personal}
        tasks = {task: torch.zeros(()) for task in spec.codecs}
        return with_prefix("theta", shared) | with_prefix("initial", kept) | with_prefix("task", tasks)

    def broadcast(self, server: State, client: str) -> State:
        return strip_prefix(server, "theta")

    def prediction_state(self, server: State, client: str) -> State:
        """Parameters and noise; not what the server needs to aggregate, some of which is of other clients."""
        return under(server, "theta", "initial", "noise", "task")

    def template(self, server: State) -> ClientUpdate:
        counts = dict.fromkeys(strip_prefix(server, "task"), 0)
        return ClientUpdate(strip_prefix(server, "theta"), counts=counts, metrics={"loss": 0.0})

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        sent = [updates[client] for client in sorted(updates)]
        return {**server, **with_prefix("theta", self.average(strip_prefix(server, "theta"), sent))}

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

    def start(self, data: ClientData, stream: Stream) -> State:
        net = self.net_of(data)
        return self.kept(net, self.initial(net, data.codecs, stream.integer()))

    def kept(self, net: Network, values: State) -> State:
        """What of these parameters stays in a client's state."""
        return with_prefix("personal", {name: values[name] for name in self.personal(net)})

    def values(self, server: State, state: State | None) -> State:
        """The parameters of a client with this state; None: of one that has nothing of its own."""
        return {
            **strip_prefix(server, "initial"),
            **strip_prefix(server, "theta"),
            **strip_prefix(state or {}, "personal"),
        }

    def batches(self, net: Network, data: ClientData, stream: Stream, epoch: int) -> Iterator[dict[str, np.ndarray]]:
        """task → positions among its labels, step by step; a task with fewer batches is done sooner."""
        rng = Stream(stream.seed, f"{stream.purpose} batches {epoch}", stream.round, stream.client).numpy()
        plan = {}
        for task, (at, _) in data.labels.items():
            order = rng.permutation(len(at))
            parts = [order[i : i + self.batch_size] for i in range(0, len(at), self.batch_size)]
            if net.has_batch_norm and len(parts) > 1 and len(parts[-1]) == 1:
                parts[-2:] = [np.concatenate(parts[-2:])]  # one sample has no batch statistics
            plan[task] = parts
        for k in range(max((len(parts) for parts in plan.values()), default=0)):
            yield {task: parts[k] for task, parts in plan.items() if k < len(parts)}

    def descend(
        self,
        values: State,
        gradient: State,
        velocity: State,
        rate: float | Tensor | None = None,
        moves: Mapping[str, Tensor] | None = None,
    ) -> None:
        """One step of SGD. Weights decay; a prior that pulls them to zero would pull noise and kernels to one.

        Stacked parameters of several clients have rates (clients,), and step where `moves` says so.
        """
        for name, g in gradient.items():
            shape, before = (-1, *(1,) * (g.dim() - 1)), values[name]
            if self.weight_decay and name.startswith(("trunk.", "head.")):
                g = g + self.weight_decay * before
            if self.momentum:
                g = self.momentum * velocity[name] + g if name in velocity else g
            step = rate.reshape(shape) if isinstance(rate, Tensor) else rate or self.learning_rate
            values[name] = before - step * g
            if moves is not None:
                some = moves[name].reshape(shape)
                values[name] = torch.where(some, values[name], before)
                g = torch.where(some, g, velocity.get(name, torch.zeros_like(g)))
            velocity[name] = g


def network_of(
    codecs: Mapping[str, LabelCodec], n_features: int, hidden: Sequence[int], factory: str | None, **options: str | bool
) -> Network:
    """The network of these tasks, made once."""
    outputs = tuple((task, n_outputs(codec)) for task, codec in codecs.items())
    return _network(outputs, n_features, hidden=tuple(hidden), factory=factory, **options)


@lru_cache(maxsize=64)
def _network(outputs: tuple[tuple[str, int], ...], n_features: int, **options: Any) -> Network:
    return Network(dict(outputs), n_features, **options)
