"""The client's side as a Flower ClientApp: `app`. It needs a node config that names its data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from polyfed.errors import DataError, PolyfedError
from polyfed.flower import node
from polyfed.flower.brief import Brief
from polyfed.flower.wire import content, opened
from polyfed.methods import State

app = ClientApp()
log = logging.getLogger("flwr")

Work = Callable[[Brief, State], tuple[dict[str, Any], State]]


@app.query()
def describe(message: Message, context: Context) -> Message:
    return _answer(message, lambda brief, _: (node.describe(brief, context.node_config), {}))


@app.train()
def train(message: Message, context: Context) -> Message:
    return _answer(message, lambda brief, sent: node.train(brief, context.node_config, sent))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    return _answer(message, lambda brief, sent: (node.evaluate_here(brief, context.node_config, sent), {}))


def _answer(message: Message, work: Work) -> Message:
    try:
        note, sent = opened(message)
        told, arrays = work(Brief.from_dict(note), sent)
    except Exception as error:  # whatever happened, the server is told that it did, and not what the data are
        log.exception("polyfed: %s", error)
        told, arrays = {"error": harmless(error)}, {}
    return Message(content(told, arrays), reply_to=message)


def harmless(error: Exception) -> str:
    """What may be told of an error: the text of one about data, or of a foreign one, may quote the data."""
    if isinstance(error, DataError):
        return f"{error.where or 'its data'}: cannot be used; the log of that node says why"
    return str(error) if isinstance(error, PolyfedError) else f"{type(error).__name__}; the log of that node says more"
