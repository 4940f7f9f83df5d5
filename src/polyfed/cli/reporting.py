"""The way to the report room: it is loaded when it is needed, and a run does not fail for want of a page."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyfed.cli.output import note
from polyfed.errors import MissingExtraError


def report_room() -> Any:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module("polyfed.report")
    except ImportError as error:
        raise MissingExtraError(
            f"reports need {error.name or 'a package'}, which is not installed",
            remedy=f"pip install {error.name or 'polyfed'}",
        ) from None


def try_report(folders: Sequence[Path], out: Path, **more: Any) -> Path | None:
    """The report, or a line that says why there is none: the run itself is safe."""
    try:
        return report_room().write_report(list(folders), out, **more)
    except Exception as error:
        note(f"warning: no report was written: {' '.join(str(error).split())}")
        return None
