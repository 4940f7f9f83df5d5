"""Checkpoints: the whole state of a run after a round, as `checkpoints/000012.safetensors` and `.json`.

The arrays are written first and the JSON, which holds their digest, last: a checkpoint without its JSON, or whose digest
does not fit, was cut off or damaged and does not count. Then the one before is used, and that is said. A state that is sound
as a file may still be none that a method can work with: whoever changed it knew how to give it a digest, or the method is no
longer what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError

from polyfed.engine.rounds import FederationState
from polyfed.errors import DataError, PolyfedError
from polyfed.folders.documents import digest, read_content, write_document
from polyfed.folders.lines import CHECKPOINTS, path_of, read_mark, rounds_of
from polyfed.folders.writing import make_private, reject_link, write
from polyfed.methods.messages import State, from_bytes, to_bytes, with_prefix

# What Python and torch raise when a name, a shape or a type is not as a method left it.
UNFIT = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, AssertionError, ArithmeticError)


class Checkpoint(NamedTuple):
    federation_state: FederationState
    events_size: int
    events_sha256: str


class Checkpoints:
    """The checkpoints of a run folder; the last `keep` stay."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder / CHECKPOINTS, keep

    def write(self, federation_state: FederationState, events_size: int = 0, events_sha256: str | None = None) -> None:
        reject_link(self.folder)
        make_private(self.folder)
        clients = sorted(federation_state.clients)  # by position: a client may have any name
        arrays = with_prefix("server", federation_state.server)
        for i, client in enumerate(clients):
            arrays |= with_prefix(f"client/{i}", federation_state.clients[client])
        content = to_bytes(arrays)
        described = {
            "round": federation_state.round,
            "clients": clients,
            "events_size": events_size,
            "events_sha256": events_sha256 or digest(b""),
            "sha256": digest(content),
        }
        write(path_of(self.folder, federation_state.round, "safetensors"), content)
        write_document(path_of(self.folder, federation_state.round, "json"), described)
        self._remove(rounds_of(self.folder)[: -self.keep])

    def _remove(self, rounds: list[int]) -> None:
        for round in rounds:
            for ending in ("json", "safetensors"):  # the JSON first: half a checkpoint must not look like a whole one
                path_of(self.folder, round, ending).unlink(missing_ok=True)

    def forget_after(self, round: int) -> None:
        reject_link(self.folder)
        self._remove([found for found in rounds_of(self.folder) if found > round])

    def read_last(self) -> tuple[Checkpoint, list[str]]:
        """The latest sound checkpoint, and what was wrong with later ones."""
        troubles: list[str] = []
        for round in reversed(rounds_of(self.folder)):
            try:
                return self.read(round), troubles
            except DataError as error:
                troubles.append(f"{error} Using the checkpoint before.")
        remedy = "start the run anew in another folder"
        raise DataError("there is no checkpoint that can be read", where=self.folder, remedy=remedy)

    def read(self, round: int) -> Checkpoint:
        path = path_of(self.folder, round, "safetensors")
        described = read_mark(self.folder, round)
        content, names = sound(path, described["sha256"]), described["clients"]
        with readable(path):
            arrays = from_bytes(content)
        server: State = {}
        clients: dict[str, State] = {name: {} for name in names}
        for name, value in arrays.items():
            kind, _, rest = name.partition("/")
            position, _, own = rest.partition("/")
            if kind == "server":
                server[rest] = value
            elif kind == "client" and position.isascii() and position.isdigit() and int(position) < len(names):
                clients[names[int(position)]][own] = value
            else:
                raise DataError(f"holds {name[:60]!r}, which is nobody's", where=path)
        return Checkpoint(FederationState(round, server, clients), described["events_size"], described["events_sha256"])


def sound(path: Path, sha256: str, remedy: str = "") -> bytes:
    """The content of a file, which must have this digest."""
    content = read_content(path, remedy)
    if digest(content) != sha256:
        raise DataError("is damaged (its digest does not fit)", where=path, remedy=remedy)
    return content


@contextmanager
def readable(path: Path, remedy: str = "", passing: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Say in a sentence that what is in a file cannot be what was written; errors that are to pass say so themselves."""
    try:
        yield
    except passing:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        what = getattr(error, "what", error)
        raise DataError(f"cannot be read ({what})", where=path, remedy=remedy) from error


@contextmanager
def state_errors(folder: Path | None) -> Iterator[None]:
    """Say in a sentence that a state that was stored in a folder does not fit its method; without a folder, errors stay.

    It is a decorator too: a predictor may look at the state only when it is called.
    """
    try:
        yield
    except UNFIT as error:
        if folder is None or isinstance(error, PolyfedError):
            raise
        reported = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        what = f"what is stored does not fit the method ({reported})"
        raise DataError(what, where=str(folder), remedy="restore the folder, or start the run anew") from error
