"""A log that does not fill the disk: where no systemd and no container engine keeps one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from polyfed.errors import UsageError

LARGEST, KEPT = 5_000_000, 5  # bytes of a file, and older files beside it


def rotating(path: Path) -> Callable[[str], None]:
    """Writes lines with their time to the file; when that is full it is `path.1`, and a new one begins."""
    log = logging.getLogger(f"polyfed.deploy.{path.absolute()}")
    log.propagate = False
    log.setLevel(logging.INFO)
    if not log.handlers:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot be written: {error.strerror}", where=str(path), remedy="choose another file for --log"
            ) from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
    return log.info
