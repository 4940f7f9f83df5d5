"""One process at a time writes to a run folder. The lock is the system's: it goes when its owner dies, however it dies.

    with owned(folder):              UsageError with the owner's number if another process has it
        ...

Who takes it finds the folder tidy: what a killed process left half-written or half-made is gone.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from polyfed.errors import DataError, UsageError
from polyfed.files import drop_parts, fcntl, hold, is_at
from polyfed.folders.documents import parsed, read_content
from polyfed.folders.making import drop_half_made
from polyfed.folders.schemas import Owner
from polyfed.folders.writing import make_private, with_path_in_errors

RUN_LOCK, LATE_CLIENTS_LOCK = ".lock", ".late_clients.lock"

_mine: dict[tuple[Path, str], int] = {}  # what this process holds → the thread that does
_looking = threading.Lock()


@contextmanager
def owned(folder: Path, name: str = RUN_LOCK) -> Iterator[None]:
    """Hold a folder, which is made if it is not there; whoever holds it already may do so again."""
    key, me = (folder.resolve(), name), threading.get_ident()
    with _looking:
        holder = _mine.get(key)
        if holder is None:
            _mine[key] = me
    if holder is not None:
        if holder != me:
            raise _busy(folder, folder / name)
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_private(folder)
        with _held(folder, folder / name):
            drop_parts(folder)
            if name == RUN_LOCK:
                drop_half_made(folder)
            yield
    finally:
        for path in made:  # what nobody wrote to is as if it had not been made
            with suppress(OSError):
                path.rmdir()
        with _looking:
            del _mine[key]


def owner_alive(folder: Path) -> bool:
    """Whether somebody seems to be writing to the folder; asked without taking the lock, which may surprise a writer."""
    owner = _owner(folder / RUN_LOCK)
    if owner is None:
        return False
    if owner.host != socket.gethostname():
        return True
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is there, and another user's
    return True


@contextmanager
def _held(folder: Path, path: Path) -> Iterator[None]:
    if fcntl is None:  # not POSIX: nobody is kept out
        yield
        return
    with with_path_in_errors(path):
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            if not hold(descriptor):
                os.close(descriptor)
                raise _busy(folder, path)
            if is_at(descriptor, path):
                break
            os.close(descriptor)
        now = datetime.now().isoformat(sep=" ", timespec="seconds")
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(owner).encode())
        except OSError:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held; who waits for it looks whether it is still there
        os.close(descriptor)


def _busy(folder: Path, path: Path) -> UsageError:
    who = "another process is at work on it"
    if owner := _owner(path):
        elsewhere = f" on {owner.host}" if owner.host != socket.gethostname() else ""
        who = f"process {owner.pid}{elsewhere} has been at work on it since {owner.since}"
    return UsageError(who, where=folder, remedy="wait until it ends, or end it")


def _owner(path: Path) -> Owner | None:
    try:
        return Owner.model_validate(parsed(read_content(path), str(path), ""))
    except (DataError, ValidationError):
        return None
