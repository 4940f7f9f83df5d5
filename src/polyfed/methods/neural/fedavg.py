"""FedAvg: every client trains the same network for some epochs, the server averages the changes.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, arXiv:1602.05629, algorithm 1: x ← x + Σ_i (n_i / Σ n) (y_i − x), the average in its delta form, so
that what nobody changes stays equal to the bit.

`fedavg-ft` tunes the averaged network on a client's own rows before it predicts: Yu, Bagdasaryan, Shmatikov: "Salvaging
Federated Learning by Local Adaptation", 2020, arXiv:2002.04758. Why so plain a step is hard to beat: Collins, Hassani,
Mokhtari, Shakkottai: "FedAvg with Fine Tuning: Local Updates Lead to Representation Learning", NeurIPS 2022,
arXiv:2205.13692. They tune the head, as is the default here.

FedBABU: the heads stay as they were drawn, the same for all; the body below them is trained and averaged. Oh, Kim, Yun:
"FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022, arXiv:2106.06042. To predict, a client
tunes head and body (or the head alone) on its own rows. A client without labels has the head that was drawn at random: its
predictions mean nothing, nor do those of the server alone. The publication has classes alone; the other kinds of tasks are an
extension of polyfed's, with the same network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.methods.base import Predictor
from polyfed.methods.messages import State, strip_prefix, with_prefix
from polyfed.methods.neural.base import BodyTrained, Neural
from polyfed.methods.neural.shared_network import SharedNetwork
from polyfed.methods.options import check_choice, check_numbers
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FineTuned(Neural):
    """Options as of `Neural`, and

    Args:
        finetune_epochs: epochs on a client's own data that make the server's model its own; 0: the server's itself.
        finetune_part: what these epochs move: `all`, or the `head` alone.
    """

    finetune_epochs: int = 0
    finetune_part: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "finetune_epochs", whole=True, least=0)
        check_choice("finetune_part", self.finetune_part, ("all", "head"))

    @property
    def personalises(self) -> bool:
        return self.finetune_epochs > 0 or self.bn_buffers == "local"

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        """The server's model, tuned on a client's own labels; nothing of it is kept or sent."""
        if state is None or not self.finetune_epochs or not data.n_labels:
            return super().predictor(server, state, data)
        net, values = self.net_of(data), self.values(server, state)
        # Of the network, not of the method: one that trains no heads in its rounds tunes them here all the same.
        names = net.heads if self.finetune_part == "head" else SharedNetwork.trainable(self, net, values)
        stream, epochs = Stream(0, "finetune"), self.finetune_epochs
        tuned, _ = self.train(net, values, data, stream, epochs=epochs, names=names)
        return self.reader(server, tuned, data)


@dataclass(frozen=True)
class FedAvg(FineTuned):
    """Options as of `FineTuned`; without `finetune_epochs` all clients have the same model."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "one network for all clients, averaged"


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg whose head each client tunes on its own rows; options as of `FedAvg`."""

    name: ClassVar[str] = "fedavg-ft"
    summary: ClassVar[str] = "one network for all clients, averaged; its head tuned on each client's rows"

    finetune_epochs: int = 5
    finetune_part: str = "head"


@dataclass(frozen=True)
class FedBABU(FineTuned, BodyTrained):
    """Options as of `FineTuned` (`local_epochs` are of the body: a local update of algorithm 1 leaves the head where it is)."""

    name: ClassVar[str] = "fedbabu"
    summary: ClassVar[str] = "a shared trunk trained under heads that stay random; both tuned on each client's rows"

    finetune_epochs: int = 5

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        server = super().init(spec, stream)
        if not self.trainable(self.net_of(spec), strip_prefix(server, "theta")):
            what = f"hidden is {list(self.hidden)!r} with network {self.network!r}: nothing to train below the heads"
            raise ConfigError(what, remedy="give FedBABU a layer to train, such as hidden=[64]")
        return server

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        """The heads that everyone began with, not a draw of its own: the trunk was trained below these."""
        return super().join(server, data, stream) | with_prefix("personal", strip_prefix(server, "initial"))
