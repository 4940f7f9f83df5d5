"""`simulate` and `load`: the two ways to a run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from polyfed.data import Federation, PreparedFederation
from polyfed.defaults import METHOD
from polyfed.engine import storage
from polyfed.engine.checkpoints import Checkpoints, readable
from polyfed.engine.events import Event, EventLog, OnEvent
from polyfed.engine.run import Run
from polyfed.engine.settings import Settings
from polyfed.errors import ConfigError, DataError, UsageError
from polyfed.folders.documents import ANEW, read_document
from polyfed.folders.lines import CHECKPOINTS
from polyfed.folders.lock import owned, owner_alive
from polyfed.folders.schemas import RunDocument
from polyfed.methods import Method
from polyfed.methods import method as method_named
from polyfed.nets.permission import reject_code

ATTEMPTS, BREATH = 20, 0.05  # looks at a folder that somebody is writing to, and seconds between two


def simulate(
    method: str | Method | Federation | PreparedFederation,
    federation: Federation | PreparedFederation | None = None,
    rounds: int = 20,
    seed: int = 0,
    *,
    sample: int | float | None = None,
    evaluate_every: int = 5,
    quorum: float = 0.5,
    max_norm: float = Settings.max_norm,
    aggregation: str = Settings.aggregation,
    trim: float = Settings.trim,
    keep: int = 3,
    workers: int = 1,
    stop: str = Settings.stop,
    patience: int = Settings.patience,
    folder: str | Path | None = None,
    resume: bool = False,
    on_event: OnEvent | None = None,
    command: list[str] | None = None,
    **options: Any,
) -> Run:
    """Run a method on a federation in this process.

    Args:
        method: its name (`polyfed methods` lists them), with its options as further arguments; or a `Method`. May be left out:
            `simulate(federation)` runs "pfed-hier".
        federation: the clients' data; splits are drawn by `seed`.
        rounds, seed, sample, evaluate_every, quorum, max_norm, aggregation, trim, keep, workers, stop, patience: see
            `Settings`.
        folder: where to keep the run, so that it survives whatever happens: a checkpoint after each round.
        resume: go on with the run that is in `folder`, if there is one.
        on_event: is called with each event as it happens.
        command: the command line that asked for the run, to be kept with it.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def client(n):
    ...     x = rng.uniform(-3, 3, (n, 1))
    ...     return {"height": (x, np.sin(x[:, 0])), "high": (x, np.sin(x[:, 0]) > 0)}
    >>> federation = Federation.from_clients(
    ...     {name: client(20) for name in ("basel", "bern", "thun")}, {"height": "regression", "high": "binary"}
    ... )
    >>> run = simulate(federation, rounds=5, seed=0)
    >>> run.client("bern").predict([[1.5]])["high"].label
    array([ True])
    """
    if isinstance(method, Federation | PreparedFederation):
        if federation is not None:
            raise UsageError("two federations and no method", remedy="give simulate a method and a federation")
        method, federation = METHOD, method
    elif federation is None:
        raise UsageError("no federation", remedy="give simulate a method and a federation, or a federation alone")
    if isinstance(method, str):
        method = method_named(method, **options)
    elif options:
        raise ConfigError(f"option {next(iter(options))!r} beside a Method", remedy="give it to the method itself")
    settings = Settings(
        rounds, seed, sample, evaluate_every, quorum, max_norm, aggregation, trim, keep, workers, stop, patience
    )
    prepared = federation.prepare(seed) if isinstance(federation, Federation) else federation
    where = None if folder is None else Path(folder)
    with owned(where) if where is not None else nullcontext():
        if where is not None and resume and (where / "run.json").is_file():
            storage.check_same(where, method, settings, prepared)
            return load(where, method=method).resume(rounds, on_event=on_event)
        run = Run(method, prepared, settings, log=EventLog())
        run.command = command
        run.log.add(start_event(run))
        if where is not None:
            storage.create(run, where)
            run = load(where, method=method)  # what is on disk is what goes on: a resume cannot differ
        return run.resume(rounds, on_event=on_event)


def start_event(run: Run) -> Event:
    """The first event: what is run, with whom, and what round 0 took."""
    return {
        "event": "start",
        "method": run.method.name,
        "options": storage.options_of(run.method),
        "seed": run.settings.seed,
        "clients": list(run.prepared.spec.clients),
        "tasks": {task.name: task.kind for task in run.prepared.spec.tasks},
        "bytes_up": sum(run.prepared.round0_bytes.values()),
        "silent": list(run.prepared.round0.silent),
        "rejected": dict(run.prepared.round0.rejected),
    }


def load(folder: str | Path, *, method: Method | None = None, allow_code: Collection[str] = ()) -> Run:
    """The run in a folder, finished or not, also while it goes on; `.resume()` goes on with it. Nothing is written.

    A checkpoint that cannot be read is passed over for the one before it, with a warning; what else is damaged is reported
    likewise, and withheld from those who need it. A network that is named as `package.module:factory` is code: unless it is
    polyfed's own, it is run only if that very name is in `allow_code`.
    """
    folder = Path(folder)
    for _ in range(ATTEMPTS):
        try:
            run = _read(folder, method, allow_code)
            if not run.troubles or not owner_alive(folder):
                break
        except DataError:
            if not owner_alive(folder):
                raise
        time.sleep(BREATH)  # its owner may be between two files
    else:
        run = _read(folder, method, allow_code)
    for trouble in run.troubles:
        warnings.warn(trouble, stacklevel=2)
    return run


def _read(folder: Path, chosen: Method | None, allowed: Collection[str]) -> Run:
    """The run in a folder as its latest sound checkpoint has it; its `troubles` are what was wrong with other parts.

    `chosen` is for methods that are not registered; of others, only code that is polyfed's own or `allowed` is run.
    """
    described = read_document(folder / "run.json", RunDocument)
    with readable(folder / "run.json", ANEW, passing=ConfigError):
        if chosen is None:
            reject_code(described["options"], allowed, where=str(folder))
        made = chosen or method_named(described["method"], **described["options"])
        settings = Settings(**described["settings"])
    prepared = storage.read_prepared(folder)
    found, troubles = Checkpoints(folder).read_last()
    log = EventLog.restored(folder, found.events_size, found.events_sha256)
    run = Run(made, prepared, settings, federation_state=found.federation_state, log=log, folder=folder)
    run.command, run.troubles = described.get("command"), troubles
    if unknown := sorted(set(found.federation_state.clients) - set(run.members.training) - set(prepared.spec.clients)):
        raise DataError(f"has a state of {unknown[0]!r}, who is no member", where=folder / CHECKPOINTS, remedy=ANEW)
    if log.trouble is not None:
        run.troubles.append(str(log.trouble))
    try:
        run.late_clients, run.late_states = storage.read_late_clients(folder)
    except DataError as error:
        run.late_trouble = error  # for those who ask for one of them
        run.troubles.append(str(error))
    return run
