"""FedBABU: the heads stay as they were drawn, the same for all; the body below them is trained and averaged.

Oh, Kim, Yun: "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022, arXiv:2106.06042. To
predict, a client tunes head and body (or the head alone) on its own rows. A client without labels has the head that was
drawn at random: its predictions mean nothing, nor do those of the server alone.

The publication has classes alone; the other kinds of tasks are an extension of polyfed's, with the same network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.messages import State, strip_prefix, with_prefix
from polyfed.methods.neural.fedavg import FineTuned
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FedBABU(FineTuned):
    """Options as of `FineTuned` (`local_epochs` are of the body)."""

    name: ClassVar[str] = "fedbabu"
    summary: ClassVar[str] = "a shared trunk trained under heads that stay random; both tuned on each client's rows"

    finetune_epochs: int = 5

    def personal(self, net: Network) -> list[str]:
        return [*net.heads, *super().personal(net)]  # never sent, and never moved by a round

    def trainable(self, net: Network, values: Mapping[str, Tensor]) -> list[str]:
        """The body alone: a local update of algorithm 1 leaves the head where it is."""
        heads = set(net.heads)
        return [name for name in super().trainable(net, values) if name not in heads]

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server = super().init(spec, stream)
        if not self.trainable(self.net(spec.codecs, spec.n_features), strip_prefix(server, "theta")):
            raise ConfigError(
                f"hidden is {list(self.hidden)!r} with network {self.network!r}: nothing to train below the heads",
                remedy="give FedBABU a layer to train, such as hidden=[64]",
            )
        return server

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """The heads that everyone began with, not a draw of its own: the trunk was trained below these."""
        return super().join(server, data, stream) | with_prefix("personal", strip_prefix(server, "initial"))
