"""Run folders on disk, for tests that spoil them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from federations import people
from polyfed.folders.documents import digest, sealed

NEW_CLIENT = people(np.random.default_rng(9), 12, ())
NEW_ROWS = [[0.5, -0.5], [1.0, 2.0]]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file by name, and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a document and give it the digest that it then has, as one would who knows how."""
    document = json.loads(path.read_bytes())
    document.pop("digest", None)
    change(document)
    path.write_bytes(sealed(document))


def reseal_events(folder: Path, content: bytes) -> None:
    """Other events, with checkpoints that say that these are the right ones."""
    (folder / "events.jsonl").write_bytes(content)
    for path in (folder / "checkpoints").glob("*.json"):
        reseal(path, lambda d: d.update(events_size=len(content), events_sha256=digest(content)))


def reseal_arrays(folder: Path, path: Path, content: bytes) -> Path:
    """Other arrays, with a document that says that these are the right ones; where they are then."""
    described = folder / "late_clients.json" if path.name.startswith("late_clients") else path.with_suffix(".json")
    reseal(described, lambda document: document.update(sha256=digest(content)))
    if path.name.startswith("late_clients"):
        path.unlink()
        path = folder / f"late_clients-{digest(content)[:16]}.safetensors"
    path.write_bytes(content)
    return path
