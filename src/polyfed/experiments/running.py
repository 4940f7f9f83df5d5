"""One run in one folder, from its settings to its last round; a start that fails leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from polyfed.data.tables.servers import is_url
from polyfed.errors import Interrupted, PolyfedError, UsageError
from polyfed.experiments.building import build_federation, build_method, build_settings, digest, reject_changed
from polyfed.experiments.config import SPLIT_OPTIONS, Config
from polyfed.experiments.reading import Document, check, move_paths, read_document
from polyfed.experiments.toml_text import to_toml
from polyfed.files import reject_unnameable
from polyfed.folders import making
from polyfed.folders.lines import CHECKPOINTS, Event, rounds_of
from polyfed.folders.lock import owned
from polyfed.folders.making import is_free
from polyfed.folders.results_file import finished_rounds
from polyfed.folders.writing import append, with_path_in_errors, write

if TYPE_CHECKING:
    from polyfed.data import Federation, PreparedFederation
    from polyfed.engine import Run
    from polyfed.methods import Method

SAMPLE = 300  # of very many clients, how many take part in a round

OnEvent = Callable[[Event], None]


def default_folder(config: Config) -> Path:
    """runs/<data>-<method>-<seed>"""
    return Path("runs") / f"{config.data.name}-{config.method.name}-{config.run.seed}"


def start(
    config: Config,
    folder: Path,
    where: str,
    *,
    federation: Federation | None = None,
    on_event: OnEvent | None = None,
    command: Sequence[str] = (),
) -> Run:
    """Begin a run in a folder that is new or empty, and run it to its end; the data are read unless they are given."""
    from polyfed.engine import simulate

    reject_used(folder)
    method = build_method(config, where)
    build_settings(config, where)  # what is wrong with them is said before anything is read
    federation = federation or build_federation(config.data, where)
    prepared = federation.prepare(config.run.seed)
    config = sampled(config, method, prepared)
    settings = build_settings(config, where)
    with leaving_nothing(folder):
        write(folder / "config.toml", to_toml(resolved(config, method, federation, folder)).encode())
        with logging_to(folder, command, on_event) as log:
            kept = {"folder": folder, "on_event": log, "command": list(command) or None}
            return simulate(method, prepared, **settings.to_dict(), **kept)


def sampled(config: Config, method: Method, prepared: PreparedFederation) -> Config:
    """The settings for this number of clients: of very many, a part takes part in each round unless it is said how many do.

    Only where a client that was never asked is served as well as others: its labels count when it predicts.
    """
    from polyfed.engine.evaluation import MANY

    n, data = len(prepared.clients), next(iter(prepared.clients.values())).train
    if config.run.sample is not None or n <= MANY or method.pools_data:
        return config
    if method.personalises and method.untrained(data) is None:
        return config
    warnings.warn(
        f"{n:,} clients: {SAMPLE} of them, drawn anew each time, take part in a round; with --sample {n} all do, and rounds "
        f"take about {n // SAMPLE} times as long",
        stacklevel=3,
    )
    return config.model_copy(update={"run": config.run.model_copy(update={"sample": SAMPLE})})


def resume(
    folder: Path,
    rounds: int | None = None,
    *,
    on_event: OnEvent | None = None,
    command: Sequence[str] = (),
    allow_code: Collection[str] = (),
) -> Run:
    """Go on with the run in a folder; the data in it are used, and a source that changed since is rejected."""
    from polyfed.engine import load

    if (folder / "flower.json").is_file():
        what, remedy = "this run was completed on many machines", "go on with polyfed deploy resume"
        raise UsageError(what, where=folder, remedy=remedy)
    if (folder / "config.toml").is_file():
        reject_changed(read_config(folder).data)
    with owned(folder):
        run = load(folder, allow_code=allow_code)
        wanted, completed = run.settings.rounds if rounds is None else rounds, run.federation_state.round
        # Results that are missing or damaged are left to be done.
        if wanted < completed or (wanted == completed and finished_rounds(folder) == completed):
            done, already = (
                f"all {run.settings.rounds} rounds are completed",
                f"{completed} rounds are completed already",
            )
            remedy = f"to go on give --rounds with a number above {completed}"
            raise UsageError(done if wanted == completed else already, where=folder, remedy=remedy)
        with with_path_in_errors(folder), logging_to(folder, command, on_event) as log:
            return run.resume(rounds, on_event=log)


def cut_off_on_flower(folder: Path) -> bool:
    """Whether the run in a folder was completed on Flower and did not come to its end."""
    return (folder / "flower" / "server" / "run.json").is_file() and not (folder / "run.json").is_file()


def read_config(folder: Path) -> Config:
    path = folder / "config.toml"
    return check(read_document(path), str(path))


def resolved(config: Config, method: Method, federation: Federation, folder: Path) -> Document:
    """The settings with all that was left open filled in, so that the same settings give the same run."""
    from polyfed.engine.storage import options_of

    split = {key: getattr(federation.split, option) for key, option in SPLIT_OPTIONS.items()}
    data = config.data.model_dump() | {"scaling": federation.scaling, **split}
    move_paths({"data": data}, lambda name: str(Path(name).expanduser().resolve()))  # the run may lie anywhere
    if data["source"] is not None and not is_url(data["source"]):
        data["sha256"] = digest(Path(data["source"]))
    data["tasks"] = [{"name": t.name, "kind": t.kind, **t.model_dump(exclude_defaults=True)} for t in config.data.tasks]
    return {
        # An empty list of markers says something: no text means that there is nothing.
        "data": {key: v for key, v in data.items() if v not in (None, [], {}) or (key == "missing" and v is not None)},
        "method": {"name": method.name, **json.loads(json.dumps(options_of(method)))},
        "run": config.run.model_dump() | {"folder": str(folder)},
    }


def reject_used(folder: Path) -> None:
    """A run starts in a folder of its own."""
    reject_unnameable(folder)
    if folder.is_file():
        raise UsageError("is a file", where=folder, remedy="choose another folder with --out")
    if (folder / "run.json").exists():
        remedy = f"go on with --resume {folder}, or choose --out"
        raise UsageError("there is a run in it already", where=folder, remedy=remedy)
    if folder.is_dir() and not is_free(folder):
        raise UsageError("is not empty", where=folder, remedy="choose a new folder with --out")


@contextmanager
def leaving_nothing(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; remove it, and those made on the way to it, if the first round is not reached."""
    new = not folder.exists()
    with owned(folder):
        reject_used(folder)  # somebody may have been faster
        making.begin(folder)
        try:
            with with_path_in_errors(folder):
                yield
        except BaseException:
            # Also those of Flower below it.
            stored = (rounds_of(path, "json") for path in folder.glob(f"**/{CHECKPOINTS}"))
            if new and not any(max(rounds, default=0) > 0 for rounds in stored):
                shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def logging_to(folder: Path, command: Sequence[str], on_event: OnEvent | None = None) -> Iterator[OnEvent]:
    """`run.log`: when what happened, and the traceback of an error that nobody expected; its value hands events on."""

    def write(text: str) -> None:
        with suppress(UsageError):  # a full disk is reported by those who write what is needed
            append(folder / "run.log", f"{datetime.now().isoformat(timespec='seconds')} {text}\n".encode())

    def take(event: Event) -> None:
        write(_line(event))
        if on_event is not None:
            on_event(event)

    write(f"begin: {' '.join(command) or 'from Python'}")
    try:
        yield take
    except Interrupted as error:
        write(f"interrupted: {error.what}")
        raise Interrupted(error.what, where=folder, remedy=f"go on with: polyfed run --resume {folder}") from None
    except PolyfedError as error:
        write(f"error: {error}")
        raise
    except Exception:
        write(f"error:\n{traceback.format_exc()}")
        raise
    write("end")


def _line(event: Event) -> str:
    if event["event"] == "round":
        rejected = "".join(f"; rejected {client}: {why}" for client, why in event["rejected"].items())
        return f"round {event['round']}: {len(event['sampled'])} clients, {event['bytes_up']} bytes up{rejected}"
    if event["event"] == "outlook":
        return f"round {event['round']}: expected to take {event['seconds'] + event['evaluation_seconds']:.0f} s"
    if event["event"] == "stopped":
        return f"round {event['round']}: the last of {event['rounds']}, as none since round {event['best']} was better"
    return f"round {event['round']}: {event['event']} on {event.get('part', '')} rows, {event.get('model', '')} models"
