"""Settings as TOML text, and the commented file that `polyfed init` writes: guesses to be corrected, and what matters most.

Python reads TOML but does not write it, and settings need only a part of it.

>>> to_toml({"run": {"rounds": 3, "sample": None}, "data": {"tasks": [{"name": "pulse"}]}})
'[run]\\nrounds = 3\\n\\n[[data.tasks]]\\nname = "pulse"\\n'
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from polyfed.data.tables.servers import is_url
from polyfed.defaults import COMPARED, METHOD
from polyfed.kinds import KINDS

if TYPE_CHECKING:
    from polyfed.experiments.guessing import Guess


def to_toml(document: Mapping[str, object]) -> str:
    """The text; keys without a value (None) are left out, as TOML has no word for them."""
    return "\n".join(_tables(document, ())) if document else ""


def config_text(guesses: Sequence[Guess], source: str | Path, out: Path, query: str | None = None) -> str:
    """A commented file; its source is found from where the file lies."""
    client = next((guess for guess in guesses if guess.role == "client"), None)
    by_kind = {kind: [guess for guess in guesses if guess.role == kind] for kind in KINDS}
    dropped = [guess.column for guess in guesses if guess.role == "drop"]
    lines = [
        "# Written by polyfed init. What follows a # is a remark: correct the guesses, then run",
        f"#   polyfed run {out.name}",
        "",
        "[data]",
        _setting("source", source if is_url(source) else os.path.relpath(source, out.parent)),
        *([] if query is None else [_setting("query", query)]),
    ]
    if client is not None:
        lines.append(f"{_setting('client', client.column)}  # {_remark(client.why)}")
    elif is_url(source) or not Path(source).is_dir():
        lines.append('# client = "..."  # no column was found that says whose row it is: name one')
    lines += [
        f"{_setting('drop', dropped)}  # neither inputs nor targets; all columns not named here are inputs",
        '# features = ["..."]  # only these are inputs',
        "test = 0.2  # the share of each client's rows that is kept for testing",
        '# scaling = "federated"  # or "local" (units of each client), "targets" (features as they are) or "none"',
        '# transform = "auto"  # let held-out rows choose the scale of skewed columns: as they are, logarithm or rank',
        '# split_by = "..."  # test on the latest rows by this column; or split_group (rows that stay together), split_column',
        "# shots = 10  # keep 10 training labels of each task",
        "",
        f"[data.tasks]  # kinds: {', '.join(KINDS)}",
    ]
    for kind, found in by_kind.items():
        if found:
            why = "; ".join(f"{guess.column}: {guess.why}" for guess in found)
            lines.append(f"{_setting(kind, [guess.column for guess in found])}  # {_remark(why)}")
    lines += [
        "",
        "# [data.derive]",
        '# disease = "num > 0"  # a column made from another by a comparison',
        "",
        "[method]",
        f'name = "{METHOD}"  # see polyfed methods',
        "",
        "[run]",
        "rounds = 20",
        "seed = 0",
        "# sample = 0.5  # the share of the clients that take part in a round",
        "",
        "[compare]  # for polyfed compare",
        _setting("methods", list(COMPARED)),
        "seeds = [0, 1, 2]",
    ]
    return "\n".join(lines) + "\n"


def _tables(table: Mapping[str, object], path: tuple[str, ...], header: str = "") -> list[str]:
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
        elif _is_list(value):
            for item in value:
                texts += _tables(item, (*path, key), f"[[{name}]]\n")
    return texts


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (_is_list(value) and {isinstance(item, Mapping) for item in value} == {True})


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: object) -> str:
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


def _setting(key: str, value: object) -> str:
    return to_toml({key: value}).rstrip("\n")


def _remark(text: str) -> str:
    """Values of a table may hold anything, and a remark ends with its line."""
    return "".join(character if character.isprintable() else " " for character in text)
