"""The JSON of checkpoints: which there are, and how far the events were when each was written. No model is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.documents import read_document
from polyfed.folders.schemas import CheckpointDocument

FOLDER = "checkpoints"
_NAME = re.compile(r"([0-9]{6,12})\.(json|safetensors)")


def rounds_of(checkpoints: Path, ending: str | None = None) -> list[int]:
    """The rounds that have a checkpoint, or a part of one with this ending, whether it can be read or not."""
    found = [_NAME.fullmatch(path.name) for path in checkpoints.iterdir()] if checkpoints.is_dir() else []
    return sorted({int(name[1]) for name in found if name and (ending is None or name[2] == ending)})


def path_of(checkpoints: Path, round: int, ending: str) -> Path:
    return checkpoints / f"{round:06d}.{ending}"


def read_mark(checkpoints: Path, round: int) -> dict[str, Any]:
    """The JSON of the checkpoint of a round."""
    path = path_of(checkpoints, round, "json")
    described = read_document(path, CheckpointDocument, remedy="")
    if described["round"] != round:
        raise DataError(f"is of round {described['round']}", where=str(path))
    return described


def last_mark(run: Path) -> dict[str, Any] | None:
    """The JSON of the latest checkpoint of a run whose JSON is sound; its arrays are not looked at."""
    for round in reversed(rounds_of(run / FOLDER, "json")):
        try:
            return read_mark(run / FOLDER, round)
        except DataError:
            continue
    return None
