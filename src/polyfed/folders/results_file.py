"""`results.json`: of a run that has come to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyfed.errors import DataError
from polyfed.folders.documents import read_document
from polyfed.folders.result_schemas import ResultsDocument

NAME = "results.json"


def read_results(folder: Path) -> dict[str, Any]:
    """What a finished run predicts and has learned."""
    return read_document(folder / NAME, ResultsDocument, "resume the run to have it written anew")


def finished_rounds(folder: Path) -> int | None:
    """After how many rounds the run in a folder came to its end; None if it did not, or if that cannot be read."""
    try:
        return read_results(folder)["round"]
    except DataError:
        return None
