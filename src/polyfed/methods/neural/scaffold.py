"""SCAFFOLD: control variates c and c_i correct the drift of local steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, arXiv:1910.06378.

A client steps along g − c_i + c. Afterwards its own control is (option I) its gradient at the server's x, or (option II)
c_i − c + (x − y)/(K η) with the K steps that were really taken; it persists on the client. The server adds the mean change of
x over the sampled clients, and (1/N) Σ Δc_i to c with N the number of registered clients, so that c = mean c_i always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, under, with_prefix
from polyfed.methods.neural.base import Neural
from polyfed.methods.options import check_choice
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class Scaffold(Neural):
    """Options as of `Neural`, and

    Args:
        option: "II" (no extra pass) or "I" (the full gradient at the server's parameters).
    """

    name: ClassVar[str] = "scaffold"
    summary: ClassVar[str] = "one network for all clients, local drift corrected by control variates"

    option: str = "II"
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("option", self.option, ("I", "II"))
        if self.weighting != "uniform":
            raise ConfigError(
                f"weighting is {self.weighting!r}",
                remedy="SCAFFOLD needs 'uniform': with other weights c is not the mean of the c_i, and its optimum moves",
            )
        if self.option == "II" and (self.momentum or self.weight_decay):
            named = "momentum" if self.momentum else "weight_decay"
            raise ConfigError(
                f"option 'II' with {named}={getattr(self, named)!r}",
                remedy=f"(x − y)/(K η) is a mean gradient for plain SGD alone: use option='I', or {named}=0",
            )

    @property
    def personalises(self) -> bool:
        return self.bn_buffers == "local"

    @property
    def needs_last_state(self) -> bool:
        return True  # c is the mean of all c_i, from their changes

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server, net = super().init(spec, stream), self.net_of(spec)
        zero = self._zero(net, strip_prefix(server, "theta"))
        return server | zero | {"n_clients": torch.tensor(float(len(spec.clients)))}

    def start(self, data: ClientData, stream: Stream) -> State:
        net = self.net_of(data)
        return super().start(data, stream) | self._zero(net, net.initial(stream.integer()))

    def _zero(self, net: Network, values: State) -> State:
        return with_prefix("control", {name: torch.zeros_like(values[name]) for name in self.trainable(net, values)})

    def broadcast(self, server: State, client: str) -> State:
        return under(server, "theta", "control")

    def template(self, server: State) -> ClientUpdate:
        plain = super().template(server)
        return replace(plain, arrays=plain.arrays | under(server, "control"))

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net, own = self.net_of(data), strip_prefix(state, "control")
        x, c = strip_prefix(message, "theta"), strip_prefix(message, "control")
        before = {**x, **strip_prefix(state, "personal")}
        steps: Counter[str] = Counter()

        def corrected(values: State, gradient: State) -> State:
            steps.update(gradient.keys())
            return {name: g - own[name] + c[name] for name, g in gradient.items()}

        after, loss = self.train(net, before, data, stream, epochs=self.local_epochs, correct=corrected)
        new = dict(own)
        if self.option == "I":
            everything = {task: np.arange(len(at)) for task, (at, _) in data.labels.items()}
            new |= self.gradient(net, dict(before), data, everything, list(own))[1]
        else:
            for name, k in steps.items():
                new[name] = own[name] - c[name] + (before[name] - after[name]) / (k * self.learning_rate)
        arrays = {name: after[name] - before[name] for name in x}
        arrays |= with_prefix("control", {name: new[name] - own[name] for name in own})
        state = {**state, **self.kept(net, after), **with_prefix("control", new)}
        return state, self.update(arrays, net, after, data, loss)

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        after = super().aggregate(server, updates)
        changes = [strip_prefix(updates[client].arrays, "control") for client in sorted(updates)]
        controls = {
            name: value + torch.stack([change[name] for change in changes]).sum(0) / server["n_clients"].to(value.dtype)
            for name, value in strip_prefix(server, "control").items()
        }
        return after | with_prefix("control", controls)
