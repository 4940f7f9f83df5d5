"""Where compiled code is kept: one folder for each state of the sources of this room.

Numba looks at the file of a function alone, not at those of the functions that it calls; so the name of the folder has a digest
of all of them. It lies beside the sources, in the user's cache where these are read-only, or where NUMBA_CACHE_DIR says; where
none of these can be written, every process compiles for itself. Numba itself compiles anew for another processor or another
numba. Processes that start at the same time wait for the first of them to compile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from logging import Logger
from pathlib import Path
from typing import Any

from numba import config as _config
from numba.core import event

HERE = Path(__file__).parent
config: Any = _config


@contextmanager
def kept(log: Logger) -> Iterator[None]:
    """Code that is compiled in this context is taken from its folder, and put there; one line says if it takes long."""
    before, place = config.CACHE_DIR, folder()
    if place is None:
        log.warning("no folder to keep compiled code in (set NUMBA_CACHE_DIR to one): every start compiles, about 20 s")
    config.CACHE_DIR = "" if place is None else str(place)
    try:
        with _alone(place), event.install_listener("numba:compile", _Announcer(log, place)):
            yield
    finally:
        config.CACHE_DIR = before


def digest() -> str:
    """The digest of the sources of this room that are compiled, or say how."""
    sources = [source.read_bytes() for source in sorted(HERE.rglob("*.py"))]
    compiled = [source for source in sources if b"compiled.jit import" in source or b"from numba" in source]
    return sha256(b"\0".join(compiled)).hexdigest()[:16]


def folder() -> Path | None:
    """Where compiled code of this room is kept, made if need be; None if nowhere."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    places = [Path(asked)] if asked else [HERE / "__pycache__", users / "polyfed"]
    for place in places:
        mine = place / f"compiled-{digest()}"
        with suppress(OSError):
            mine.mkdir(parents=True, exist_ok=True)
            if os.access(mine, os.W_OK | os.X_OK):
                return mine
    return None


class _Announcer(event.Listener):
    def __init__(self, log: Logger, folder: Path | None) -> None:
        self.log, self.folder, self.said = log, folder, False

    def on_start(self, event: object) -> None:
        if not self.said and self.folder is not None:
            self.log.warning("compiling the inner loop once, about 20 s (kept in %s)", self.folder)
        self.said = True

    def on_end(self, event: object) -> None:
        pass


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """While another process compiles into this folder, wait for what it will leave."""
    descriptor = None
    with suppress(ImportError, OSError):  # not POSIX, or no locks on this disk: everybody for himself
        import fcntl

        if folder is not None:
            descriptor = os.open(folder / "compiling", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
