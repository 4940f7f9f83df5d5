"""The one place where writing to a run folder may fail: a full disk is a sentence, and files are private."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyfed.errors import PolyfedError, UsageError
from polyfed.files import PRIVATE, write_whole

PRIVATE_FOLDER = 0o700
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ELSEWHERE = "choose another folder with --out"


def write(path: Path, content: bytes) -> None:
    """A file, whole or not at all."""
    with told(path):
        write_whole(path, content)


def append(path: Path, line: bytes, *, safely: bool = False) -> None:
    """A line at the end of a file; `safely`: on disk before this returns."""
    # NONBLOCK: nobody may ever read at the other end of a pipe that has the name.
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    with told(path), os.fdopen(os.open(path, how, PRIVATE), "ab") as file:
        file.write(line)
        if safely:
            file.flush()
            os.fsync(file.fileno())


def cut(path: Path, size: int) -> None:
    """Forget what was written after the file had this many bytes."""
    with told(path), path.open("rb+") as file:
        file.truncate(size)


def make_private(folder: Path) -> None:
    """A folder that its owner alone can look into; those above it are as others are."""
    with told(folder):
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            with suppress(PermissionError):  # it is another user's, who lets us write
                folder.chmod(PRIVATE_FOLDER)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Errors of the disk as a sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, (PolyfedError, BrokenPipeError)):  # the latter is of those who read what is printed
            raise
        remedy = "make room there; what was stored until now can be resumed" if error.errno in FULL else ELSEWHERE
        raise UsageError(f"cannot be written: {error.strerror or error}", where=str(path), remedy=remedy) from error
