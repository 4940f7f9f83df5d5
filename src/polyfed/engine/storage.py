"""Run folders.

| file               | what                                                                              |
|--------------------|-----------------------------------------------------------------------------------|
| `run.json`         | method, options, settings, versions: written last, so a folder with it is whole    |
| `study.json`, `study.safetensors` | what the federation agreed on, and the clients' coded data (private)     |
| `events.jsonl`     | what happened, the same for the same seed                                         |
| `timing.jsonl`     | when, and how long it took                                                        |
| `checkpoints/`     | states after the last rounds                                                      |
| `results.json`     | predictions on the test rows, latent functions, what was learned: for the report  |
| `guests.json`, `guests.safetensors` | clients that joined later, if there are any                            |
"""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as array_bytes

from polyfed import __version__
from polyfed.data import Study
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.events import EventLog
from polyfed.engine.run import Run
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError, DataError, UsageError
from polyfed.files import write_whole
from polyfed.methods import Method, method
from polyfed.methods.messages import from_bytes, to_bytes

FORMAT = 1


def create(run: Run, folder: Path) -> None:
    """A folder for a run that begins: all that `load` needs but events, and checkpoint 0."""
    if (folder / "run.json").exists():
        raise UsageError(
            "there is a run in it already", where=str(folder), remedy="resume it, or choose a folder that is new"
        )
    folder.mkdir(parents=True, exist_ok=True)
    described = run.study.to_dict()
    write_whole(folder / "study.safetensors", array_bytes(run.study.arrays()))
    write_whole(folder / "study.json", json.dumps(described).encode())
    content = b"".join(json.dumps(event).encode() + b"\n" for event in run.events)
    write_whole(folder / "events.jsonl", content)
    Checkpoints(folder, run.settings.keep).write(run.progress, len(content))
    write_description(run, folder)


def write_description(run: Run, folder: Path) -> None:
    """`run.json`, which also says how many rounds are wanted in all."""
    versions = {"polyfed": __version__, "torch": torch.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    described = {
        "format": FORMAT,
        "method": run.method.name,
        "options": options_of(run.method),
        "settings": run.settings.to_dict(),
        "versions": versions,
        "command": run.command,
    }
    write_whole(folder / "run.json", json.dumps(described, indent=2).encode())


def save(run: Run, folder: Path) -> Path:
    """A run that is in memory, or in another folder, as a folder of its own; what changed, if it is there already."""
    if run.folder is None or folder.resolve() != run.folder.resolve():
        create(run, folder)
        run.write_results(folder)
    if run.guests is not None:
        arrays = {f"study/{name}": torch.from_numpy(value) for name, value in run.guests.arrays().items()}
        for i, state in enumerate(run.guest_states.values()):
            arrays |= {f"state/{i}/{name}": value for name, value in state.items()}
        write_whole(folder / "guests.safetensors", to_bytes(arrays))
        described = {"names": list(run.guest_states), "study": run.guests.to_dict()}
        write_whole(folder / "guests.json", json.dumps(described).encode())
    return folder


def load(folder: str | Path, *, chosen: Method | None = None) -> tuple[Run, list[str]]:
    """The run in a folder as its latest sound checkpoint has it, and what was wrong with later ones.

    `chosen` is for methods that are not registered.
    """
    folder = Path(folder)
    described = read_json(folder / "run.json")
    if described.get("format") != FORMAT:
        raise DataError(
            f"is of another version of polyfed: format {described.get('format')!r}, not {FORMAT}",
            where=str(folder / "run.json"),
            remedy="use the version that wrote it, or start the run anew",
        )
    try:
        made = chosen or method(described["method"], **described["options"])
        settings = Settings.from_dict(described["settings"])
    except (KeyError, TypeError) as error:
        raise DataError(f"cannot be read ({error})", where=str(folder), remedy="start the run anew") from error
    study = read_study(folder)
    progress, size, troubles = Checkpoints(folder).read_last()
    log = EventLog(folder)
    log.cut(size)
    run = Run(made, study, settings, progress=progress, log=log, folder=folder)
    run.command = described.get("command")
    _load_guests(run, folder)
    return run, troubles


def read_study(folder: Path) -> Study:
    """What the federation of the run in a folder agreed on, and the data that are there."""
    try:
        arrays = read_arrays((folder / "study.safetensors").read_bytes())
        return Study.from_saved(read_json(folder / "study.json"), arrays)
    except (KeyError, TypeError, OSError, SafetensorError) as error:
        raise DataError(f"cannot be read ({error})", where=str(folder), remedy="start the run anew") from error


def _load_guests(run: Run, folder: Path) -> None:
    if not (folder / "guests.json").is_file():
        return
    described = read_json(folder / "guests.json")
    arrays = from_bytes((folder / "guests.safetensors").read_bytes())
    own = {name.removeprefix("study/"): v.numpy() for name, v in arrays.items() if name.startswith("study/")}
    run.guests = Study.from_saved(described["study"], own)
    for i, name in enumerate(described["names"]):
        prefix = f"state/{i}/"
        state = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
        run.guest_states[name] = state


def options_of(made: Method) -> dict[str, Any]:
    """The options of a method, ready for JSON."""
    return asdict(made) if is_dataclass(made) else {}  # pyright: ignore[reportArgumentType]


def check_same(folder: Path, made: Method, settings: Settings, study: Study | None = None) -> None:
    """Refuse to go on with a run under another method, other options, another seed or other data."""
    found = read_json(folder / "run.json")
    wanted = json.loads(json.dumps({"method": made.name, "options": options_of(made), "settings": settings.to_dict()}))
    different = [key for key in ("method", "options") if wanted[key] != found.get(key)]
    free = ("rounds", "workers", "keep")  # a run may be longer, faster or larger than it was begun
    different += [k for k, v in wanted["settings"].items() if k not in free and v != found["settings"].get(k)]
    if study is not None and json.loads(json.dumps(study.to_dict())) != read_json(folder / "study.json"):
        different.append("data")
    if different:
        raise ConfigError(
            f"the run there differs in {', '.join(different)}",
            where=str(folder),
            remedy="resume with what it was started with, or choose a folder that is new",
        )


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"there is no {path.name}", where=str(path.parent), remedy="give the folder of a run") from None
    except ValueError as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy="start the run anew") from error
