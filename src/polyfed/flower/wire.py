"""Arrays and notes as Flower's messages, and back: the only place that knows how they are packed.

A message holds one record: a note, which is one JSON document, and all arrays as one file of safetensors. Flower stores,
signs for and fetches every array of an ArrayRecord as an object of its own, with several requests for each, so a message
of thirty arrays would take seconds where one of a single record takes a tenth. Nothing else is read, whoever sent it.
"""

from __future__ import annotations

import json

from flwr.app import ConfigRecord, Message, RecordDict
from safetensors import SafetensorError

from polyfed.flower.round_context import Note
from polyfed.methods import State
from polyfed.methods.messages import from_bytes, to_bytes

RECORD, NOTE, ARRAYS = "polyfed", "note", "arrays"
LONGEST_NOTE = 50_000_000  # characters


def content(note: Note, arrays: State | None = None) -> RecordDict:
    """A message's content."""
    text = json.dumps(note, allow_nan=False)
    return RecordDict({RECORD: ConfigRecord({NOTE: text, ARRAYS: to_bytes(arrays or {})})})


def opened(message: Message) -> tuple[Note, State]:
    """The note and the arrays of a message; a ValueError, TypeError or KeyError if it is not one of ours."""
    records = message.content.config_records
    if RECORD not in records:
        raise ValueError("it holds no record of polyfed, or of another version: install the same on all machines")
    text, packed = records[RECORD][NOTE], records[RECORD][ARRAYS]
    if not isinstance(text, str) or not isinstance(packed, bytes):
        raise TypeError(f"its record holds a {type(text).__name__} and a {type(packed).__name__}")
    if len(text) > LONGEST_NOTE:
        raise ValueError(f"the note has {len(text)} characters")
    try:
        note = json.loads(text)
    except RecursionError:
        raise ValueError("the note is nested too deep") from None
    if not isinstance(note, dict):
        raise TypeError(f"the note is a {type(note).__name__}")
    try:
        return note, from_bytes(packed)
    except (SafetensorError, OverflowError, AttributeError, KeyError) as error:  # the last two: a type torch has not
        raise ValueError(f"its arrays cannot be read ({type(error).__name__}: {error})") from None


def answered(reply: Message) -> tuple[Note, State]:
    """The note and the arrays of a node's reply; a note of an `error` alone if there are none."""
    if reply.has_error():  # why Flower has no answer, in its last line
        lines = str(reply.error.reason or "").strip().splitlines()
        return {"error": f"Flower's error {reply.error.code}" + (f": {lines[-1][:200]}" if lines else "")}, {}
    try:
        return opened(reply)
    except (ValueError, TypeError, KeyError) as error:
        return {"error": f"its answer is not understood ({error})"}, {}


def message_to(node: int, kind: str, note: Note, arrays: State | None, timeout: float) -> Message:
    """A message that expires once the server no longer waits for its answer."""
    return Message(content(note, arrays), dst_node_id=node, message_type=kind, ttl=timeout + 5.0)
