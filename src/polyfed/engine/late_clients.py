"""Late-joining clients on disk: `late_clients.json`, and their arrays in a file that is named after its digest.

They have a lock of their own, so that a client can join while a run goes on. The JSON is written between the new arrays
and the removal of the old ones: whoever is killed when leaves the old clients or the new, never half of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from polyfed.data import PreparedFederation
from polyfed.engine.checkpoints import readable, sound
from polyfed.errors import DataError
from polyfed.folders.documents import digest, read_document, write_document
from polyfed.folders.lock import LATE_CLIENTS_LOCK, owned
from polyfed.folders.schemas import LateClientsDocument
from polyfed.folders.writing import write as write_file
from polyfed.methods.messages import State, from_bytes, strip_prefix, to_bytes, with_prefix

if TYPE_CHECKING:
    from polyfed.engine.run import Run

NAME = "late_clients.json"
REMEDY = "remove late_clients.json to do without the clients that joined later; the others are not concerned"
ATTEMPTS = 5


def write_new(run: Run, folder: Path) -> None:
    """Those who joined since the run was loaded, beside those whom others have let join meanwhile."""
    if not run.new_late_clients:
        return
    assert run.late_clients is not None
    with owned(folder, LATE_CLIENTS_LOCK):
        there, states = read(folder)
        if taken := [name for name, replaces in run.new_late_clients.items() if name in states and not replaces]:
            raise DataError(f"client {taken[0]!r} is there already", where="join", remedy="choose another name")
        mine, new = run.late_clients, run.new_late_clients
        clients = {**({} if there is None else there.clients), **{name: mine.clients[name] for name in new}}
        encoders = {**({} if there is None else there.encoders), **{name: mine.encoders[name] for name in new}}
        spec, sizes = replace(mine.spec, clients=tuple(clients)), dict.fromkeys(clients, 0)
        merged = replace(mine, spec=spec, clients=clients, encoders=encoders, round0_bytes=sizes)
        states |= {name: run.late_states[name] for name in new}
        write(merged, states, folder)
    run.late_clients, run.late_states, run.new_late_clients = merged, states, {}


def read(folder: Path) -> tuple[PreparedFederation | None, dict[str, State]]:
    path = folder / NAME
    for attempt in range(ATTEMPTS):
        if not path.exists() and not path.is_symlink():  # a link that leads nowhere is damage
            return None, {}
        described = read_document(path, LateClientsDocument, REMEDY)
        arrays = _path_of(folder, described["sha256"])
        if not arrays.exists() and attempt < ATTEMPTS - 1:
            continue  # replaced since
        content = sound(arrays, described["sha256"], REMEDY)
        with readable(arrays, REMEDY):
            found = from_bytes(content)
            own = {name: value.numpy() for name, value in strip_prefix(found, "prepared").items()}
            states = {name: strip_prefix(found, f"state/{i}") for i, name in enumerate(described["names"])}
            return PreparedFederation.from_saved(described["prepared"], own), states
    raise AssertionError("the last attempt returns or raises")


def write(prepared: PreparedFederation, states: Mapping[str, State], folder: Path) -> None:
    arrays = with_prefix("prepared", {name: torch.from_numpy(value) for name, value in prepared.arrays().items()})
    for i, name in enumerate(prepared.clients):
        arrays |= with_prefix(f"state/{i}", states[name])
    content = to_bytes(arrays)
    sha256 = digest(content)
    write_file(_path_of(folder, sha256), content)
    write_document(folder / NAME, {"sha256": sha256, "names": list(prepared.clients), "prepared": prepared.to_dict()})
    for old in folder.glob("late_clients-*.safetensors"):
        if old != _path_of(folder, sha256):
            with suppress(OSError):
                old.unlink()


def _path_of(folder: Path, sha256: str) -> Path:
    return folder / f"late_clients-{sha256[:16]}.safetensors"
