"""polyfed's client app, but for what happens to some clients in some rounds.

What happens is in the file that POLYFED_FAULTS names: {"ROUND/CLIENT": WHAT}; it is read at every message.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from flwr.app import Message
from flwr.clientapp import ClientApp

from polyfed.flower import round_context
from polyfed.flower.client_app import app as sound
from polyfed.flower.wire import content, opened

app = ClientApp()


@app.query()
def describe(message, context):
    if _fault(message, context) == "version":
        round_context.FORMAT, own = 99, round_context.FORMAT
        try:
            return sound(message, context)
        finally:
            round_context.FORMAT = own
    return sound(message, context)


@app.evaluate()
def evaluate(message, context):
    return sound(message, context)


@app.train()
def train(message, context):
    fault = _fault(message, context)
    if fault == "raise":
        raise RuntimeError("deliberate")
    if fault == "exit":
        os._exit(3)
    if fault == "hang":
        time.sleep(100_000)
    while fault == "wait":  # until the file says no more that it does
        time.sleep(0.1)
        fault = _fault(message, context)
    reply = sound(message, context)
    note, arrays = opened(reply)
    name = next(name for name in arrays if name.startswith("arrays/"))
    if fault == "nan":
        arrays[name] = arrays[name] * float("nan")
    if fault == "shape":
        arrays[name] = torch.zeros(7)
    return Message(content(note, arrays), reply_to=message)


def _fault(message, context):
    faults = json.loads(Path(os.environ["POLYFED_FAULTS"]).read_text())
    return faults.get(f"{opened(message)[0]['round']}/{context.node_config['client']}")
