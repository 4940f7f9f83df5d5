"""FedRoD: two heads on one trunk. The generic one is for everyone, the personal one adds what is a client's own.

Chen, Chao: "On Bridging Generic and Personalized Federated Learning for Image Classification", ICLR 2022, arXiv:2107.00778
(their Fed-RoD with linear personal heads, not the variant with a hypernetwork). With features h, a client takes steps on
the sum of two losses:

    generic    ℓ(f_g(h) + log n_c, y)                n_c: the client's labels of class c; "balanced softmax"
    personal   ℓ(f_g(h) + f_p(h), y)                 whose gradient moves f_p alone

The balanced loss asks all clients for the same, however their classes are mixed; so trunk and generic head are averaged.
The personal head stays, and is zero at first: a client's own model begins as the generic one (the publication leaves this
open).

The publication has classes alone. Without classes there is nothing to balance: the generic loss is then the plain one.
This is an extension of polyfed's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from polyfed.data import ClientData, LabelCodec
from polyfed.methods.messages import State
from polyfed.methods.neural.base import Neural
from polyfed.methods.options import check_numbers
from polyfed.methods.supervised import groups_of, outputs_of_scores, rows_of
from polyfed.nets import Network
from polyfed.seeds import Stream

OWN = "own_"  # before the name of a generic head: the personal one


@dataclass(frozen=True)
class FedRoD(Neural):
    """Options as of `Neural`, and

    Args:
        join_epochs: epochs in which a client that joins later trains its personal heads.
    """

    name: ClassVar[str] = "fedrod"
    summary: ClassVar[str] = "a shared trunk with two heads: a balanced one for all, and one of each client's own"

    join_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "join_epochs", whole=True, least=0)

    def initial(self, net: Network, codecs: Mapping[str, LabelCodec], seed: int) -> State:
        values = super().initial(net, codecs, seed)
        return values | {OWN + name: torch.zeros_like(values[name]) for name in net.heads}

    def personal(self, net: Network) -> list[str]:
        return [*(OWN + name for name in net.heads), *super().personal(net)]

    def served(self, net: Network, values: State) -> State:
        """Both heads are linear in the same features: their sum is the head of a client's own model."""
        return values | {name: values[name] + values[OWN + name] for name in net.heads}

    def loss(
        self, net: Network, data: ClientData, live: State, task: str, positions: np.ndarray, *, train: bool = True
    ) -> Tensor:
        rows, i = rows_of(data, task, positions), list(net.tasks).index(task)
        h = net.features(live, rows.x, task, train=train and self.bn_buffers != "frozen")
        generic = linear(h, live[f"head.{i}.weight"], live[f"head.{i}.bias"])
        own = linear(h.detach(), live[f"{OWN}head.{i}.weight"], live[f"{OWN}head.{i}.bias"])
        return rows.loss(generic + self.balance(data, task)) + rows.loss(generic.detach() + own)

    def balance(self, data: ClientData, task: str) -> Tensor:
        """log n_c of all of a client's labels; a class that it has not got is taken out of the softmax (log 0)."""
        rows = rows_of(data, task)
        if not rows.codec.classes:
            return torch.zeros(1, dtype=torch.float64)
        return outputs_of_scores((rows.counted @ groups_of(rows.y, rows.codec)).log(), rows.codec)

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        return self.train_personal(server, super().join(server, data, stream), data, stream, self.join_epochs)
