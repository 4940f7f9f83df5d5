"""Late-joining clients on disk: `guests.json`, and their arrays in a file that is named after its digest.

They have a lock of their own, so that a client can join while a run goes on. The JSON is written between the new arrays
and the removal of the old ones: whoever is killed when leaves the old clients or the new, never half of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError

from polyfed.data import Study
from polyfed.errors import DataError
from polyfed.folders.documents import digest, read_content, read_document, write_document
from polyfed.folders.lock import GUESTS_LOCK, owned
from polyfed.folders.schemas import GuestsDocument
from polyfed.folders.writing import write
from polyfed.methods.messages import State, from_bytes, to_bytes

if TYPE_CHECKING:
    from polyfed.engine.run import Run

NAME = "guests.json"
REMEDY = "remove guests.json to do without the clients that joined later; the others are not concerned"
ATTEMPTS = 5

Guests = tuple[Study | None, dict[str, State]]


def read_into(run: Run, folder: Path) -> None:
    """The late-joining clients of a folder; what is wrong with them is kept for those who ask for one."""
    try:
        run.guests, run.guest_states = read(folder)
    except DataError as error:
        run.guest_trouble = error
        run.troubles.append(str(error))


def write_all(run: Run, folder: Path) -> None:
    """All late-joining clients of a run in a folder that has none."""
    if run.guests is not None:
        _write((run.guests, run.guest_states), folder)


def write_new(run: Run, folder: Path) -> None:
    """Those who joined since the run was loaded, beside those whom others have let join meanwhile."""
    if not run.new_guests:
        return
    assert run.guests is not None
    with owned(folder, GUESTS_LOCK):
        there, states = read(folder)
        if taken := [name for name in run.new_guests if name in states and name not in run.updated_guests]:
            raise DataError(f"client {taken[0]!r} is there already", where="join", remedy="choose another name")
        merged = _beside(there, run.guests, run.new_guests)
        states |= {name: run.guest_states[name] for name in run.new_guests}
        _write((merged, states), folder)
    run.guests, run.guest_states, run.new_guests = merged, states, []
    run.updated_guests.clear()


def read(folder: Path) -> Guests:
    """The study and the states of the late-joining clients, if there are any."""
    path = folder / NAME
    for attempt in range(ATTEMPTS):
        if not path.exists() and not path.is_symlink():  # a link that leads nowhere is damage
            return None, {}
        described = read_document(path, GuestsDocument, REMEDY)
        arrays = _path_of(folder, described["sha256"])
        if not arrays.exists() and attempt < ATTEMPTS - 1:
            continue  # replaced since
        content = read_content(arrays, REMEDY)
        if digest(content) != described["sha256"]:
            raise DataError("is damaged (its digest does not fit)", where=str(arrays), remedy=REMEDY)
        try:
            return _restored(described, from_bytes(content))
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            what = getattr(error, "what", error)
            raise DataError(f"cannot be read ({what})", where=str(arrays), remedy=REMEDY) from error
    raise AssertionError("the last attempt returns or raises")


def _write(guests: Guests, folder: Path) -> None:
    study, states = guests
    assert study is not None
    arrays = {f"study/{name}": torch.from_numpy(value) for name, value in study.arrays().items()}
    for i, name in enumerate(study.clients):
        arrays |= {f"state/{i}/{key}": value for key, value in states[name].items()}
    content = to_bytes(arrays)
    sha256 = digest(content)
    write(_path_of(folder, sha256), content)
    write_document(folder / NAME, {"sha256": sha256, "names": list(study.clients), "study": study.to_dict()})
    for old in folder.glob("guests-*.safetensors"):
        if old != _path_of(folder, sha256):
            with suppress(OSError):
                old.unlink()


def _restored(described: dict, arrays: State) -> Guests:
    own = {name.removeprefix("study/"): v.numpy() for name, v in arrays.items() if name.startswith("study/")}
    states: dict[str, State] = {}
    for i, name in enumerate(described["names"]):
        prefix = f"state/{i}/"
        states[name] = {key.removeprefix(prefix): v for key, v in arrays.items() if key.startswith(prefix)}
    return Study.from_saved(described["study"], own), states


def _beside(there: Study | None, mine: Study, names: Iterable[str]) -> Study:
    """The clients of one study, and those of another with these names."""
    clients = {**({} if there is None else there.clients), **{name: mine.clients[name] for name in names}}
    encoders = {**({} if there is None else there.encoders), **{name: mine.encoders[name] for name in names}}
    return replace(
        mine,
        spec=replace(mine.spec, clients=tuple(clients)),
        clients=clients,
        encoders=encoders,
        round0_bytes=dict.fromkeys(clients, 0),
    )


def _path_of(folder: Path, sha256: str) -> Path:
    return folder / f"guests-{sha256[:16]}.safetensors"
