"""Checkpoints: the whole state of a run after a round, as `checkpoints/000012.safetensors` and `.json`.

The arrays are written first and the JSON, which holds their digest, last: a checkpoint without its JSON, or whose digest
does not fit, was cut off or damaged and does not count. Then the one before is used, and that is said.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from polyfed.engine.rounds import Progress
from polyfed.errors import DataError
from polyfed.files import write_whole
from polyfed.methods.messages import from_bytes, to_bytes

FORMAT = 1


class Checkpoints:
    """The checkpoints of a run folder; the last `keep` stay."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder / "checkpoints", keep

    def write(self, progress: Progress, events_size: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        clients = sorted(progress.clients)  # by position: a client may have any name
        arrays = {f"server/{name}": value for name, value in progress.server.items()}
        for i, client in enumerate(clients):
            arrays |= {f"client/{i}/{name}": value for name, value in progress.clients[client].items()}
        content = to_bytes(arrays)
        described = {
            "format": FORMAT,
            "round": progress.round,
            "clients": clients,
            "events_size": events_size,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        path = self.folder / f"{progress.round:06d}"
        write_whole(path.with_suffix(".safetensors"), content)
        write_whole(path.with_suffix(".json"), json.dumps(described).encode())
        for old in self.rounds()[: -self.keep]:
            self._remove(old)

    def _remove(self, round: int) -> None:
        for suffix in (".json", ".safetensors"):  # the JSON first: half a checkpoint must not look like a whole one
            (self.folder / f"{round:06d}{suffix}").unlink(missing_ok=True)

    def rounds(self) -> list[int]:
        """The rounds that have a checkpoint, whether it can be read or not."""
        stems = {path.stem for path in self.folder.glob("*.*") if path.stem.isdigit()}
        return sorted(int(stem) for stem in stems)

    def forget_after(self, round: int) -> None:
        """Throw away the checkpoints of later rounds."""
        for later in (found for found in self.rounds() if found > round):
            self._remove(later)

    def read_last(self) -> tuple[Progress, int, list[str]]:
        """The latest sound checkpoint, the size of the events at that time, and what was wrong with later ones."""
        troubles: list[str] = []
        for round in reversed(self.rounds()):
            try:
                progress, size = self.read(round)
                return progress, size, troubles
            except DataError as error:
                troubles.append(f"{error} Using the checkpoint before.")
        raise DataError(
            "there is no checkpoint that can be read",
            where=str(self.folder),
            remedy="start the run anew in another folder",
        )

    def read(self, round: int) -> tuple[Progress, int]:
        """The checkpoint of a round, and the size of the events at that time."""
        path = self.folder / f"{round:06d}.safetensors"
        try:
            described: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
            content = path.read_bytes()
            if described["format"] != FORMAT:
                raise DataError(f"format {described['format']!r} is not {FORMAT}", where=str(path))
            if hashlib.sha256(content).hexdigest() != described["sha256"]:
                raise DataError("is damaged (its digest does not fit)", where=str(path))
            arrays = from_bytes(content)
            server, clients = {}, {client: {} for client in described["clients"]}
            for name, value in arrays.items():
                kind, _, rest = name.partition("/")
                if kind == "server":
                    server[rest] = value
                else:
                    position, _, rest = rest.partition("/")
                    clients[described["clients"][int(position)]][rest] = value
            return Progress(int(described["round"]), server, clients), int(described["events_size"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"cannot be read ({error})", where=str(path)) from error
