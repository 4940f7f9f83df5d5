"""Arrays and notes as Flower's messages, and back: the only place that knows how they are packed.

A message holds arrays, by name, and a note: one JSON document. Nothing else is read, whoever sent it.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from polyfed.methods import State

ARRAYS, NOTE, TEXT = "arrays", "note", "json"
LONGEST_NOTE = 50_000_000  # characters


def to_record(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().contiguous().numpy()) for name, value in state.items()})


def to_state(record: ArrayRecord) -> State:
    return {name: torch.from_numpy(array.numpy()) for name, array in record.items()}


def content(note: dict[str, Any], arrays: State | None = None) -> RecordDict:
    """A message's content."""
    text = json.dumps(note, allow_nan=False)
    return RecordDict({ARRAYS: to_record(arrays or {}), NOTE: ConfigRecord({TEXT: text})})


def opened(message: Message) -> tuple[dict[str, Any], State]:
    """The note and the arrays of a message; a ValueError, TypeError or KeyError if it is not one of ours."""
    text = str(message.content.config_records[NOTE][TEXT])
    if len(text) > LONGEST_NOTE:
        raise ValueError(f"the note has {len(text)} characters")
    try:
        note = json.loads(text)
    except RecursionError:
        raise ValueError("the note is nested too deep") from None
    if not isinstance(note, dict):
        raise TypeError(f"the note is a {type(note).__name__}")
    return note, to_state(message.content.array_records[ARRAYS])
