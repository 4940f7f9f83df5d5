"""FedPer: the trunk is averaged, the last layers are each client's own and never leave it.

Arivazhagan, Aggarwal, Singh, Choudhary: "Federated Learning with Personalization Layers", 2019, arXiv:1912.00818.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from polyfed.data import ClientData
from polyfed.methods.messages import ClientUpdate, State
from polyfed.methods.neural.base import Neural
from polyfed.methods.options import check_choice, check_numbers
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FedPer(Neural):
    """Options as of `Neural`, and

    Args:
        n_personal_layers: counted from the output: 1 keeps the heads, 2 the last layer of the trunk too, …
        head_init: `shared` (all clients begin with the same) or `own`.
        head_epochs: epochs in which a client that joins later trains its personal layers.
    """

    name: ClassVar[str] = "fedper"
    summary: ClassVar[str] = "a shared trunk, the last layers personal"

    # Half the rate of the others and less: a head that is nobody else's has no average to bring it back. At .05 it diverged
    # where a client's rows share a value of eleven standard deviations (docs/results/tables.md).
    learning_rate: float = 0.02
    n_personal_layers: int = 1
    head_init: str = "shared"
    head_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "n_personal_layers", whole=True, least=1)
        check_numbers(self, "head_epochs", whole=True, least=0)
        check_choice("head_init", self.head_init, ("shared", "own"))

    def personal(self, net: Network) -> list[str]:
        return list(dict.fromkeys([*net.heads, *net.last_layers(self.n_personal_layers - 1), *super().personal(net)]))

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        if self.head_init == "own" and "begun" not in state:
            net = self.net_of(data)
            own = net.initial(Stream(stream.seed, "own head", client=stream.client).integer())
            state = state | self.kept(net, own) | {"begun": torch.ones(())}
        return super().local(state, message, data, stream)

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        return self.train_personal(server, super().join(server, data, stream), data, stream, self.head_epochs)
