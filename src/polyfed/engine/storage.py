"""Runs in their folders, which are described in `polyfed.folders`. `create`, `take_up` and `save` write, and hold the folder
meanwhile; `simulate.load` only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import torch
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as array_bytes

from polyfed import __version__
from polyfed.data import PreparedFederation
from polyfed.engine.checkpoints import Checkpoints, readable, sound
from polyfed.engine.events import EventLog
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError, DataError, UsageError
from polyfed.folders import making
from polyfed.folders.documents import ANEW, digest, read_document, write_document
from polyfed.folders.lines import EVENTS_FILE
from polyfed.folders.lock import LATE_CLIENTS_LOCK, owned
from polyfed.folders.schemas import LateClientsDocument, PreparedDocument, RunDocument
from polyfed.folders.writing import write
from polyfed.methods import Method
from polyfed.methods.messages import State, from_bytes, strip_prefix, to_bytes, with_prefix

if TYPE_CHECKING:
    from polyfed.engine.run import Run


def create(run: Run, folder: Path) -> None:
    """A folder for a run that begins: all that `load` needs but events, and checkpoint 0."""
    with owned(folder):
        if (folder / "run.json").exists():
            remedy = "resume it, or choose a folder that is new"
            raise UsageError("there is a run in it already", where=str(folder), remedy=remedy)
        making.begin(folder)
        arrays = array_bytes(run.prepared.arrays())
        write(folder / "prepared.safetensors", arrays)
        write_document(folder / "prepared.json", {"sha256": digest(arrays), "prepared": run.prepared.to_dict()})
        write(folder / EVENTS_FILE, run.log.content())
        Checkpoints(folder, run.settings.keep).write(run.federation_state, run.log.size, run.log.sha256)
        write_summary(run, folder)
        making.end(folder)


def write_summary(run: Run, folder: Path) -> None:
    """`run.json`, which also says how many rounds are wanted in all."""
    versions = {"polyfed": __version__, "torch": torch.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    described = {
        "method": run.method.name,
        "options": options_of(run.method),
        "pools_data": run.method.pools_data,
        "settings": run.settings.to_dict(),
        "versions": {name: str(version) for name, version in versions.items()},
        "command": run.command,
    }
    write_document(folder / "run.json", described, indent=2)


def save(run: Run, folder: Path) -> Path:
    """A run that is in memory, or in another folder, as a folder of its own; what changed, if it is there already."""
    if run.folder is None or folder.resolve() != run.folder.resolve():
        with owned(folder):
            create(run, folder)
            run.write_results(folder)
            if run.late_clients is not None:
                _write_late_clients(run.late_clients, run.late_states, folder)
    else:
        write_late_clients(run, folder)
    return folder


def take_up(run: Run) -> None:
    """Make the folder, which is held by now, and the run in memory one: what is on disk counts, and later events go."""
    assert run.folder is not None
    found, troubles = Checkpoints(run.folder).read_last()
    if found.federation_state.round != run.federation_state.round or run.log.trouble is not None:
        run.federation_state = found.federation_state
    run.log = EventLog.restored(run.folder, found.events_size, found.events_sha256)
    run.log.cut()
    for trouble in troubles:
        run.log.add_timing(warning=trouble)


def read_prepared(folder: Path) -> PreparedFederation:
    """What the federation of the run in a folder agreed on, and the data that are there."""
    described, path = read_document(folder / "prepared.json", PreparedDocument), folder / "prepared.safetensors"
    content = sound(path, described["sha256"], ANEW)
    with readable(path, ANEW):
        return PreparedFederation.from_saved(described["prepared"], read_arrays(content))


def options_of(made: Method) -> dict[str, Any]:
    return asdict(made) if is_dataclass(made) else {}  # pyright: ignore[reportArgumentType]


def check_same(folder: Path, made: Method, settings: Settings, prepared: PreparedFederation | None = None) -> None:
    """Do not go on with a run under another method, other options, another seed or other data."""
    found = read_document(folder / "run.json", RunDocument)
    wanted = json.loads(json.dumps({"method": made.name, "options": options_of(made), "settings": settings.to_dict()}))
    different = [key for key in ("method", "options") if wanted[key] != found.get(key)]
    free = ("rounds", "workers", "keep")  # a run may be longer, faster or larger than it was begun
    different += [k for k, v in wanted["settings"].items() if k not in free and v != found["settings"].get(k)]
    if prepared is not None:
        there = read_document(folder / "prepared.json", PreparedDocument)["prepared"]
        different += ["data"] if json.loads(json.dumps(prepared.to_dict())) != there else []
    if different:
        remedy = "resume with what it was started with, or choose a folder that is new"
        raise ConfigError(f"the run there differs in {', '.join(different)}", where=str(folder), remedy=remedy)


# ---- clients that joined late: `late_clients.json`, and their arrays in a file that is named after its digest ------------
# They have a lock of their own, so that a client can join while a run goes on. The JSON is written between the new arrays and
# the removal of the old ones: whoever is killed when leaves the old clients or the new, never half of each.

LATE_CLIENTS = "late_clients.json"
REMEDY = "remove late_clients.json to do without the clients that joined later; the others are not concerned"
ATTEMPTS = 5


def write_late_clients(run: Run, folder: Path) -> None:
    """Store the clients that joined since the run was loaded, beside those that other processes stored meanwhile."""
    if not run.new_late_clients:
        return
    assert run.late_clients is not None
    with owned(folder, LATE_CLIENTS_LOCK):
        there, states = read_late_clients(folder)
        if taken := [name for name, replaces in run.new_late_clients.items() if name in states and not replaces]:
            raise DataError(f"client {taken[0]!r} is there already", where="join", remedy="choose another name")
        mine, new = run.late_clients, run.new_late_clients
        clients = {**({} if there is None else there.clients), **{name: mine.clients[name] for name in new}}
        encoders = {**({} if there is None else there.encoders), **{name: mine.encoders[name] for name in new}}
        spec, sizes = replace(mine.spec, clients=tuple(clients)), dict.fromkeys(clients, 0)
        merged = replace(mine, spec=spec, clients=clients, encoders=encoders, round0_bytes=sizes)
        states |= {name: run.late_states[name] for name in new}
        _write_late_clients(merged, states, folder)
    run.late_clients, run.late_states, run.new_late_clients = merged, states, {}


def read_late_clients(folder: Path) -> tuple[PreparedFederation | None, dict[str, State]]:
    path = folder / LATE_CLIENTS
    for attempt in range(ATTEMPTS):
        if not path.exists() and not path.is_symlink():  # a link that leads nowhere is damage
            return None, {}
        described = read_document(path, LateClientsDocument, REMEDY)
        arrays = _late_arrays(folder, described["sha256"])
        if not arrays.exists() and attempt < ATTEMPTS - 1:
            continue  # replaced since
        content = sound(arrays, described["sha256"], REMEDY)
        with readable(arrays, REMEDY):
            found = from_bytes(content)
            own = {name: value.numpy() for name, value in strip_prefix(found, "prepared").items()}
            states = {name: strip_prefix(found, f"state/{i}") for i, name in enumerate(described["names"])}
            return PreparedFederation.from_saved(described["prepared"], own), states
    raise AssertionError("the last attempt returns or raises")


def _write_late_clients(prepared: PreparedFederation, states: Mapping[str, State], folder: Path) -> None:
    arrays = with_prefix("prepared", {name: torch.from_numpy(value) for name, value in prepared.arrays().items()})
    for i, name in enumerate(prepared.clients):
        arrays |= with_prefix(f"state/{i}", states[name])
    content = to_bytes(arrays)
    sha256 = digest(content)
    described = {"sha256": sha256, "names": list(prepared.clients), "prepared": prepared.to_dict()}
    write(_late_arrays(folder, sha256), content)
    write_document(folder / LATE_CLIENTS, described)
    for old in set(folder.glob("late_clients-*.safetensors")) - {_late_arrays(folder, sha256)}:
        with suppress(OSError):
            old.unlink()


def _late_arrays(folder: Path, sha256: str) -> Path:
    return folder / f"late_clients-{sha256[:16]}.safetensors"
