"""A client's own model is the server's, after some epochs on the client's own rows: options and predictor.

Yu, Bagdasaryan, Shmatikov: "Salvaging Federated Learning by Local Adaptation", 2020, arXiv:2002.04758.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfed.data import ClientData
from polyfed.methods.base import Predictor
from polyfed.methods.messages import State
from polyfed.methods.neural.base import Neural
from polyfed.methods.neural.shared_network import SharedNetwork
from polyfed.methods.options import check_choice, check_numbers
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FineTuned(Neural):
    """Options as of `Neural`, and

    Args:
        finetune_epochs: a client's own model is the server's after so many epochs on its own data; 0: the server's itself.
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
