"""Settings as TOML text. Python reads TOML but does not write it, and settings need only a part of it.

>>> to_toml({"run": {"rounds": 3, "sample": None}, "data": {"tasks": [{"name": "pulse"}]}})
'[run]\\nrounds = 3\\n\\n[[data.tasks]]\\nname = "pulse"\\n'
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


def to_toml(document: Mapping[str, Any]) -> str:
    """The text; keys without a value (None) are left out, as TOML has no word for them."""
    return "\n".join(_tables(document, ())) if document else ""


def _tables(table: Mapping[str, Any], path: tuple[str, ...], header: str = "") -> list[str]:
    """The texts of a table and of the tables in it, each with its header."""
    plain = {key: value for key, value in table.items() if value is not None and not _is_table(value)}
    inner = {key: value for key, value in table.items() if _is_table(value)}
    text = "".join(f"{_key(key)} = {_value(value)}\n" for key, value in plain.items())
    texts = [f"{header}{text}"] if text or (header and not inner) else []
    if header.startswith("[[") and not texts:  # without its header, the tables in it would belong to the one before
        texts = [header]
    for key, value in inner.items():
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            texts += _tables(value, (*path, key), f"[{name}]\n")
        else:
            for item in value:
                texts += _tables(item, (*path, key), f"[[{name}]]\n")
    return texts


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return _is_list(value) and len(value) > 0 and all(isinstance(item, Mapping) for item in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if _is_list(value):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return repr(value)


def _text(text: str) -> str:
    # JSON escapes as TOML does, but for the delete character, which TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
