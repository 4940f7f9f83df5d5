"""JSON documents of a run folder. Each begins with the digest of the rest of it, and has a schema.

>>> sealed({"format": 2})
b'{"digest": "3da2733d...", "format": 2}'
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from polyfed.errors import ConfigError, DataError
from polyfed.folders.writing import write

FORMAT = 3  # 1 had no digests, 2 other names of files and fields
ANEW = "start the run anew"

_SEAL = re.compile(rb'\{"digest": "([0-9a-f]{64})", ')


def sealed(document: dict[str, Any], indent: int | None = None) -> bytes:
    try:
        body = json.dumps(document, indent=indent, allow_nan=False).encode()
    except ValueError as error:
        raise ConfigError(f"cannot be stored ({error})", remedy="give finite numbers alone") from error
    return b'{"digest": "' + digest(body).encode() + b'", ' + body[1:]


def write_document(path: Path, document: dict[str, Any], indent: int | None = None) -> None:
    write(path, sealed({"format": FORMAT, **document}, indent))


def read_document(path: Path, schema: type[BaseModel], remedy: str = ANEW) -> dict[str, Any]:
    """The document as it was written; an error that names the file if it is not."""
    return read_sealed(read_content(path, remedy), schema, str(path), remedy)


def read_sealed(content: bytes, schema: type[BaseModel], where: str, remedy: str = ANEW) -> dict[str, Any]:
    """The document in these bytes, as `sealed` wrote it."""
    found = _SEAL.match(content)
    if found is None:
        _reject_other_format(parsed(content, where, remedy), where)
        raise DataError("is damaged (it has no digest)", where=where, remedy=remedy)
    if digest(b"{" + content[found.end() :]) != found[1].decode():
        raise DataError("is damaged (its digest does not fit)", where=where, remedy=remedy)
    document = parsed(content, where, remedy)
    _reject_other_format(document, where)
    reject_unlike(document, schema, where, remedy)
    return document


def read_content(path: Path, remedy: str = ANEW) -> bytes:
    try:
        if not path.exists():
            raise DataError(f"there is no {path.name}", where=path.parent, remedy="give the folder of a run")
        if not path.is_file():  # nobody would ever write to the other end of a pipe
            raise DataError("is not a file", where=path, remedy=remedy)
        return path.read_bytes()
    except (OSError, MemoryError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise DataError(f"cannot be read ({why})", where=path, remedy=remedy) from error


def parsed(content: bytes, where: str, remedy: str) -> Any:
    """JSON of any depth, size and kind, or one sentence."""
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise DataError(f"cannot be read ({error})", where=where, remedy=remedy) from None


def reject_unlike(document: Any, schema: type[BaseModel], where: str, remedy: str) -> None:
    """An error that names the first entry that is not as the schema says."""
    if what := unlike(document, schema):
        raise DataError(f"cannot be read ({what})", where=where, remedy=remedy)


def unlike(document: Any, schema: type[BaseModel]) -> str | None:
    """The first entry that is not as the schema says, and how it is not; None if all are."""
    try:
        schema.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:100]
        what = f"{place}: {first['msg']}" if place else first["msg"]
        return f"{what[0].lower()}{what[1:]}"
    return None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _reject_other_format(document: Any, where: str) -> None:
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(document, dict) and "format" in document and found != FORMAT:
        what = f"is of another version of polyfed: format {str(found)[:20]}, not {FORMAT}"
        raise DataError(what, where=where, remedy="use the version that wrote it, or start the run anew")
