"""The client's side as a Flower ClientApp: `app`. It needs a node config that names its data."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from polyfed.errors import DataError, PolyfedError
from polyfed.flower import node
from polyfed.flower.own_config import NodeConfig, OwnConfig
from polyfed.flower.round_context import Note, RoundContext
from polyfed.flower.wire import content, opened
from polyfed.methods import State

log = logging.getLogger("flwr")

Work = Callable[[RoundContext, OwnConfig, State], tuple[Note, State]]


def make_app(own_config: Callable[[NodeConfig], OwnConfig] = OwnConfig.of) -> ClientApp:
    """The app of a node; `own_config` makes its configuration of what Flower's node config says."""

    def answering(work: Work) -> Callable[[Message, Context], Message]:
        def reply(message: Message, context: Context) -> Message:
            try:
                note, sent = opened(message)
                answer, arrays = work(RoundContext.from_dict(note), own_config(context.node_config), sent)
            except Exception as error:  # whatever happened, the server learns that it did, and not what the data are
                log.exception("polyfed: %s", error)
                answer, arrays = {"error": harmless(error)}, {}
            return Message(content(answer, arrays), reply_to=message)

        return reply

    app = ClientApp()
    app.query()(answering(node.describe))
    app.train()(answering(node.train))
    app.evaluate()(answering(node.evaluate_here))
    return app


def harmless(error: Exception) -> str:
    """What may leave of an error: the text of one about data, or of another library, may quote the data or name a path."""
    if isinstance(error, DataError):
        return "its data cannot be used; the log of that node says why"
    return str(error) if isinstance(error, PolyfedError) else f"{type(error).__name__}; the log of that node says more"


app = make_app()
