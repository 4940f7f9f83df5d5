"""FedAvg: every client trains the same network for some epochs, the server averages the changes.

x ← x + Σ_i (n_i / Σ n) (y_i − x): the average in its delta form, so that what nobody changes stays equal to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyfed.data import ClientData
from polyfed.methods.base import Predictor
from polyfed.methods.messages import State
from polyfed.methods.neural import Neural
from polyfed.methods.options import check_number
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FedAvg(Neural):
    """Options as of `Neural`, and

    Args:
        finetune_epochs: a client's own model is the server's after so many epochs on its own data; 0: the server's itself.
    """

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "one network for all clients, averaged"

    finetune_epochs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("finetune_epochs", self.finetune_epochs, whole=True, least=0)

    @property
    def personalises(self) -> bool:
        return self.finetune_epochs > 0 or self.bn_buffers == "local"

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        if state is None or not self.finetune_epochs or not data.n_labels:
            return super().predictor(server, state, data)
        values = self.values(server, state)
        tuned, _ = self.train(self.net_of(data), values, data, Stream(0, "finetune"), epochs=self.finetune_epochs)
        return self.reader(server, tuned, data)
