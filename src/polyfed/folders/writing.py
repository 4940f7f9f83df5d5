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
# A folder may come from others: a link in it must not lead the writer to files elsewhere, nor a pipe let it wait for ever.
_HERE = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def write(path: Path, content: bytes) -> None:
    with with_path_in_errors(path):
        write_whole(path, content)


def append(path: Path, line: bytes, *, safely: bool = False) -> None:
    """A line at the end of a file; `safely`: on disk before this returns."""
    with with_path_in_errors(path), os.fdopen(os.open(path, _HERE | os.O_APPEND | os.O_CREAT, PRIVATE), "ab") as file:
        file.write(line)
        if safely:
            file.flush()
            os.fsync(file.fileno())


def cut(path: Path, size: int) -> None:
    """Forget what was written after the file had this many bytes."""
    with with_path_in_errors(path), os.fdopen(os.open(path, _HERE), "wb") as file:
        file.truncate(size)


def make_private(folder: Path) -> None:
    """A folder that its owner alone can look into; those above it are as others are."""
    with with_path_in_errors(folder):
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            with suppress(PermissionError):  # it is another user's, who lets us write
                folder.chmod(PRIVATE_FOLDER)


def reject_link(folder: Path) -> None:
    """An error if a part of a run folder leads elsewhere, where files would be written and removed."""
    if folder.is_symlink():
        raise UsageError("is a link to another folder", where=folder, remedy="put the folder itself there")


@contextmanager
def with_path_in_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, (PolyfedError, BrokenPipeError)):  # the latter is of those who read what is printed
            raise
        remedy = "make room there; what was stored until now can be resumed" if error.errno in FULL else ELSEWHERE
        raise UsageError(f"cannot be written: {error.strerror or error}", where=path, remedy=remedy) from error
