"""`events.jsonl` and `timing.jsonl`: JSON lines, each with a schema; a last line that is still being written is left out.

A reader sees the events as the last checkpoint left them: those of one round, whatever a run appends meanwhile. So the JSON
of checkpoints is here too: which there are, and how far the events were when each was written. No model is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.documents import digest, parsed, read_content, read_document, reject_unlike
from polyfed.folders.schemas import EVENTS, AnyEvent, CheckpointDocument, TimingEntry

EVENTS_FILE, TIMING_FILE, CHECKPOINTS = "events.jsonl", "timing.jsonl", "checkpoints"
_CHECKPOINT = re.compile(r"([0-9]{6,12})\.(json|safetensors)")
Event = dict[str, Any]  # of one of the forms that `schemas` has
REMEDY = "restore the file or start the run anew"


def read_events(folder: Path) -> list[Event]:
    """The events of the run in a folder until its last checkpoint; all of them if it has none."""
    path, mark = folder / EVENTS_FILE, last_mark(folder)
    if mark is None:
        return list(parse_events(read_content(path, REMEDY) if path.exists() else b"", path))
    return list(parse_events(content_until(path, mark["events_size"], mark["events_sha256"]), path))


def content_until(path: Path, size: int, sha256: str) -> bytes:
    """The first `size` bytes of a file, which must have this digest."""
    content = read_content(path, REMEDY) if path.exists() else b""
    if len(content) < size:
        what = f"has {len(content)} bytes, but the checkpoint was written when it had {size}"
        raise DataError(what, where=path, remedy="restore the file, or start the run anew in another folder")
    if digest(content[:size]) != sha256:
        raise DataError("is damaged (its digest does not fit)", where=path, remedy=REMEDY)
    return content[:size]


def parse_events(content: bytes, path: Path, first: int = 1) -> Iterator[Event]:
    """Events of the kinds that are known, and others as they are; `first` is the number of the first line."""
    for number, line in _whole_lines(content, first):
        where = f"{path}, line {number}"
        event = parsed(line, where, REMEDY)
        reject_unlike(event, AnyEvent, where, REMEDY)
        reject_unlike(event, EVENTS.get(event["event"], AnyEvent), where, REMEDY)
        yield event


def parse_timing(content: bytes, path: Path, first: int = 1) -> Iterator[Event]:
    """When and how long; a line that cannot be read becomes a warning, for nothing depends on it."""
    for number, line in _whole_lines(content, first):
        where = f"{path.name}, line {number}"  # a report is shown to others: it need not say where the run lies
        try:
            entry = parsed(line, where, "")
            reject_unlike(entry, TimingEntry, where, "")
            yield entry
        except DataError as error:
            yield {"warning": str(error)}


def _whole_lines(content: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    whole = content[: content.rfind(b"\n") + 1]
    yield from enumerate(whole.split(b"\n")[:-1], start=first)


def rounds_of(checkpoints: Path, ending: str | None = None) -> list[int]:
    """The rounds that have a checkpoint, or a part of one with this ending, whether it can be read or not."""
    found = [_CHECKPOINT.fullmatch(path.name) for path in checkpoints.iterdir()] if checkpoints.is_dir() else []
    return sorted({int(name[1]) for name in found if name and (ending is None or name[2] == ending)})


def path_of(checkpoints: Path, round: int, ending: str) -> Path:
    return checkpoints / f"{round:06d}.{ending}"


def read_mark(checkpoints: Path, round: int) -> Event:
    path = path_of(checkpoints, round, "json")
    described = read_document(path, CheckpointDocument, remedy="")
    if described["round"] != round:
        raise DataError(f"is of round {described['round']}", where=path)
    return described


def last_mark(run: Path) -> Event | None:
    """The JSON of the latest checkpoint of a run whose JSON is sound; its arrays are not looked at."""
    for round in reversed(rounds_of(run / CHECKPOINTS, "json")):
        try:
            return read_mark(run / CHECKPOINTS, round)
        except DataError:
            continue
    return None
