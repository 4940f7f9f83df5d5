"""What pFedMe and Ditto share: each client has a network of its own, tied to the shared one by a quadratic."""

from __future__ import annotations

from typing import ClassVar

from polyfed.data import ClientData
from polyfed.methods.base import Predictor
from polyfed.methods.messages import State, strip_prefix
from polyfed.methods.neural.base import Neural
from polyfed.seeds import Stream


class OwnNetwork(Neural):
    """A client predicts with a network of its own, in its state under `kept_as`."""

    kept_as: ClassVar[str]

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        if state is None:
            return super().predictor(server, None, data)
        # Never sampled, or new: its own parameters are what the definition says, found here.
        own = strip_prefix(state, self.kept_as) or strip_prefix(
            self.join(server, data, Stream(0, "join")), self.kept_as
        )
        return self.reader(server, own, data)
