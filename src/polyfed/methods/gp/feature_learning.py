"""Features that a federation learns, beside the paper's algorithm: labels held out from them, and where projections start.

Two parts, each with keys of its own in states, messages and updates:

* **held-out labels** (holdout.py): a client sends two gradients of the features, of the labels that they are learned from and
  (`held_out/…`) of those that they never see; the server shortens its step where the two do not agree (`agreement/…`);
* **the start by moments** (projection_start.py): while the server's state has `starting`, that is in round 1, an update has
  `direction/features.projection` in place of the projection's gradient, and the server does nothing but start from their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.gp import Prior, Rows, group_of
from polyfed.methods.gp.client_stacks import mean_over
from polyfed.methods.gp.holdout import MEMORY, agreement, held_out_inputs, judged_together, shortened, split, trust
from polyfed.methods.gp.projection_start import PROJECTION, directions, started
from polyfed.methods.messages import State, strip_prefix, with_prefix
from polyfed.methods.update_batch import Columns
from polyfed.seeds import Stream

HELD_OUT, AGREEMENT, STARTING = "held_out", "agreement", "starting"
DIRECTION = f"direction/{PROJECTION}"
OWN = (f"{AGREEMENT}/", STARTING)  # in the server's state, and no client's business when it predicts


@dataclass(frozen=True)
class FeatureLearning:
    """`share`: the inputs of a client that are held out from the features; `seeks`: whether round 1 looks for a start."""

    share: float
    seeks: bool

    # ---- the server ---------------------------------------------------------------------------------------

    def begun(self, theta: State) -> State:
        """What the server remembers before the first round."""
        one = torch.ones((), dtype=torch.float64)
        agreements = dict.fromkeys(judged_together(self._of(theta)), one)
        return with_prefix(AGREEMENT, agreements) | ({STARTING: one} if self.seeks else {})

    @staticmethod
    def broadcast(server: State) -> State:
        return {STARTING: server[STARTING]} if STARTING in server else {}

    def form(self, server: State) -> State:
        """The arrays of an update that belong to Θ and its features."""
        theta = strip_prefix(server, "theta")
        sent = theta | with_prefix(HELD_OUT, self._of(theta))
        if STARTING in server:
            sent[DIRECTION] = sent.pop(PROJECTION)
        return sent

    @staticmethod
    def start(server: State, columns: Columns, weights: Tensor) -> State:
        """The server after round 1, if that was for a start: all else is learned from the next round on."""
        projection = started(server[f"theta/{PROJECTION}"], mean_over(columns.array(DIRECTION), weights))
        return {name: value for name, value in server.items() if name != STARTING} | {f"theta/{PROJECTION}": projection}

    def trusted(
        self, server: State, gradient: State, columns: Columns, weights: Tensor, moved: State
    ) -> tuple[State, State]:
        """The step of the features as far as held-out labels agree with it, and the agreements so far."""
        theta, agreements = strip_prefix(server, "theta"), {}
        for label, features in judged_together(self._of(gradient)).items():
            held_out = {name: mean_over(columns.array(f"{HELD_OUT}/{name}"), weights) for name in features}
            now = agreement(features, held_out)
            agreements[label] = MEMORY * server[f"{AGREEMENT}/{label}"] + (1 - MEMORY) * now
            moved = shortened(theta, moved, features, trust(agreements[label]))
        return moved, with_prefix(AGREEMENT, agreements)

    # ---- a client -----------------------------------------------------------------------------------------

    def chosen(self, data: ClientData, stream: Stream) -> State:
        """The inputs that a client holds out from the features, for good."""
        if not self.share:
            return {}
        return {HELD_OUT: held_out_inputs(data, self.share, replace(stream, purpose="holdout").numpy())}

    def kept(self, state: State) -> State:
        """What of a client's state a round does not change."""
        return {HELD_OUT: state[HELD_OUT]} if self.share else {}

    def split(self, clients: Sequence[ClientData], states: Sequence[State]) -> tuple[Sequence[ClientData], ...]:
        """The labels that features are learned from, and those that all else is learned from."""
        if not self.share:
            return clients, clients
        pairs = [split(data, state[HELD_OUT]) for data, state in zip(clients, states, strict=True)]
        return [taught for taught, _ in pairs], [held_out for _, held_out in pairs]

    def gradients(self, of_taught: State, of_held_out: State) -> State:
        """What is sent of the features: what the labels ask for that they are learned from, and what the others do."""
        return {**of_taught, **with_prefix(HELD_OUT, self._of(of_held_out))}

    @staticmethod
    def directions(prior: Prior, before: State, taught: Sequence[Rows], rows: Sequence[Rows]) -> State:
        """Where each client would have the projection start."""
        priors = [prior.with_values({name: value[i] for name, value in before.items()}) for i in range(len(rows))]
        return {DIRECTION: torch.stack([directions(*each) for each in zip(priors, taught, rows, strict=True)])}

    def _of(self, values: Mapping[str, Tensor]) -> State:
        """The parameters of features among these, if some labels are held out from them."""
        return {name: value for name, value in values.items() if self.share and group_of(name) == "features"}
