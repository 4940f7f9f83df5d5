"""Files that are there whole or not at all, and names that no file can have."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from polyfed.errors import UsageError

try:
    import fcntl
except ImportError:  # not POSIX: nobody can tell whether another process holds a file
    fcntl = None

PRIVATE = 0o600
SHOWN = 0o644  # what is made to be shown, such as a report
PART = ".part"  # how the name of a file ends that is still being written


def write_whole(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a file so that a reader, also one after a crash, sees the old content or the new, never a part."""
    descriptor, part = _new_part(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while it is held: `drop_parts` must not take it for one that was left
                os.fchmod(file.fileno(), mode)
                part.replace(path)
        if fcntl is None:
            part.replace(path)  # where an open file cannot be moved
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def drop_parts(folder: Path) -> None:
    """Remove what killed processes left half-written here and below; what somebody is writing now stays."""
    for part in folder.rglob(f".*{PART}"):
        if part.is_symlink() or not part.is_file():
            continue
        with suppress(OSError), part.open("rb") as file:
            if fcntl is not None and hold(file.fileno()):
                part.unlink()


def hold(descriptor: int) -> bool:
    """Keep a file for this process until it closes it or dies; False if another process has it."""
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of that name: between opening and holding it, it may have been removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _new_part(path: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(PART, f".{path.name}.", path.parent)
        part = Path(name)
        if fcntl is None or (hold(descriptor) and is_at(descriptor, part)):
            return descriptor, part
        os.close(descriptor)


def reject_unnameable(path: str | Path, where: str = "") -> None:
    """An error if no file or folder can have this name; whether there is one is for others to say.

    >>> reject_unnameable("x" * 300)
    Traceback (most recent call last):
    polyfed.errors.UsageError: 'xxxxxxxxxxx...' can be no name of a file (too long); choose another.
    """
    try:
        os.lstat(path)
    except ValueError:
        what = "null character"
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return
        what = "too long"
    else:
        return
    shown = str(path) if len(str(path)) <= 60 else f"{str(path)[:60]}..."
    raise UsageError(f"{shown!r} can be no name of a file ({what})", where=where, remedy="choose another")
