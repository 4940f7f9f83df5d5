"""Ditto: beside the shared network w, learned as FedAvg's, each client keeps one of its own, v, near it.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, arXiv:2012.04221. A
client that is asked in a round takes steps on (their equation for h_k)

    F_k(v) + λ/2 ‖v − w‖²          w as it was sent, before the client's own steps on it

and predicts with v. λ = 0 is training alone; where λ is large, v is w. A client that is not asked keeps its v.

Two choices of polyfed's: v begins at the w of the first round in which a client is asked (in the publication, which has all
begin alike, that is the same for round 1), and a client that never was asked, or that joins late, makes its steps from the
last w, all in one go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyfed.data import ClientData
from polyfed.errors import ConfigError
from polyfed.methods.messages import ClientUpdate, State, strip_prefix, with_prefix
from polyfed.methods.neural.own_networks import OwnNetwork
from polyfed.methods.options import check_numbers
from polyfed.nets import Network
from polyfed.seeds import Stream


@dataclass(frozen=True)
class Ditto(OwnNetwork):
    """Options as of `Neural` (of the shared network), and

    Args:
        penalty: λ, how strongly a client's own network is tied to the shared one; 0: not at all.
        personal_rate: learning rate of the steps on v; needs personal_rate · (curvature + λ) < 2.
        personal_epochs: passes over a client's data for v in a round.
        join_epochs: passes for the v of a client that no round has asked.
    """

    name: ClassVar[str] = "ditto"
    summary: ClassVar[str] = "a network of each client's own, near the shared one that FedAvg learns beside it"
    kept_as: ClassVar[str] = "own"

    penalty: float = 1.0
    personal_rate: float = 0.05
    personal_epochs: int = 2
    join_epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "penalty", least=0)
        check_numbers(self, "personal_rate", above=0)
        check_numbers(self, "personal_epochs", whole=True, least=1)
        check_numbers(self, "join_epochs", whole=True, least=0)
        if self.penalty * self.personal_rate >= 2:
            raise ConfigError(
                f"penalty {self.penalty:g} times personal_rate {self.personal_rate:g} is {self.penalty * self.personal_rate:g}",
                remedy=f"steps diverge from 2 on: give a personal_rate below {2 / self.penalty:g}",
            )

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        net = self.net_of(data)
        w = {**message, **strip_prefix(state, "personal")}
        v = strip_prefix(state, "own") or w
        v = self.near(net, v, w, data, stream, self.personal_epochs)
        state, update = super().local(state, message, data, stream)
        return {**state, **with_prefix("own", v)}, update

    def near(self, net: Network, v: State, w: State, data: ClientData, stream: Stream, epochs: int) -> State:
        """Algorithm 1, v ← v − η (∇F_k(v) + λ (v − w)): also what the client has no labels for is pulled to w."""

        def pulled(values: State, gradient: State) -> State:
            pull = {name: self.penalty * (values[name] - w[name]) for name in self.trainable(net, values)}
            return {name: slope + gradient[name] if name in gradient else slope for name, slope in pull.items()}

        near, _ = self.train(net, v, data, stream, epochs=epochs, rate=self.personal_rate, correct=pulled)
        return near

    def join(self, server: State, data: ClientData, stream: Stream) -> State:
        state, w = super().join(server, data, stream), self.values(server, None)
        return state | with_prefix("own", self.near(self.net_of(data), w, w, data, stream, self.join_epochs))
