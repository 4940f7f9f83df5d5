"""Settings from a TOML file, from options, or both, checked; every error says where in one sentence.

>>> check({"data": {"dataset": "penguins"}, "run": {"rouns": 3}}, "study.toml")
Traceback (most recent call last):
polyfed.errors.ConfigError: study.toml, run.rouns: is no key of [run]; did you mean 'rounds'? known are 'rounds', ...
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from polyfed.data.tables.files import is_table_file
from polyfed.data.tables.servers import is_url
from polyfed.errors import ConfigError, UsageError, nearest
from polyfed.experiments.config import CompareConfig, Config, DataConfig, ImagesConfig, RunConfig, TaskConfig
from polyfed.kinds import KINDS

Document = dict[str, Any]

_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config,
    ("data",): DataConfig,
    ("data", "images"): ImagesConfig,
    ("data", "tasks"): TaskConfig,
    ("run",): RunConfig,
    ("compare",): CompareConfig,
}
# What is found from where the file lies.
_PATHS = {
    ("data",): ("source",),
    ("data", "options"): ("folder", "table"),
    ("data", "images"): ("weights_dir", "cache"),
}
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "a text in quotes",
    "bool": "true or false",
    "list": "a list such as ['a', 'b']",
    "dict": "a table",
    "model": "a table",
    "too": "at least one",
}


def read_document(path: Path) -> Document:
    """The content of a TOML file, unchecked, with its source and folders relative to where we are."""
    if is_table_file(path) and path.is_file():
        raise ConfigError("is a table, and not a file of settings", where=path, remedy=f"give it as --data {path}")
    try:
        document = _loads(path.read_bytes().decode())
    except OSError as error:
        absent = isinstance(error, FileNotFoundError)
        reason = "there is no such file" if absent else f"cannot be read: {error.strerror}"
        raise ConfigError(reason, where=path, remedy="correct the path, or write one with polyfed init") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError("is not UTF-8 text", where=f"line {line} of {path}", remedy="save it in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        # tomllib ends its sentence with the place, which belongs to the beginning of ours.
        found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error), re.S)
        lines = path.read_bytes().count(b"\n") + 1
        what, line = (found[1], found[2]) if found else (str(error).removesuffix(" (at end of document)"), lines)
        what = f"is not TOML: {what[:1].lower()}{what[1:]}"
        raise ConfigError(what, where=f"line {line} of {path}", remedy="correct it") from None
    except _Beyond as error:
        raise ConfigError(str(error), where=path, remedy="correct it") from None
    move_paths(document, lambda name: str(path.parent / Path(name).expanduser()))
    return document


def move_paths(document: Document, move: Callable[[str], str]) -> None:
    """Write every path in a document of settings anew."""
    for section, keys in _PATHS.items():
        table: Any = document
        for name in section:
            table = table.get(name) if isinstance(table, dict) else None
        for key in keys if isinstance(table, dict) else ():
            if isinstance(table.get(key), str) and not is_url(table[key]):
                table[key] = move(table[key])


def set_value(document: Document, assignment: str) -> None:
    """Set one key as `--set` has it: a.b=c, the value as TOML writes it, and as plain text where it is not TOML."""
    key, equals, text = assignment.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise UsageError(f"{assignment!r} sets nothing", where="--set", remedy="write for example run.rounds=10")
    try:
        put(document, names, _value(text))
    except _Beyond as error:
        raise UsageError(str(error), where="--set", remedy="correct it") from None


def read_grid(assignment: str) -> tuple[tuple[str, ...], list[object]]:
    """One option of a grid as `--grid` has it.

    >>> read_grid("local.kernel=rbf,matern52"), read_grid("fedavg.hidden=[32],[64, 64]")
    ((('local', 'kernel'), ['rbf', 'matern52']), (('fedavg', 'hidden'), [[32], [64, 64]]))
    """
    key, equals, text = assignment.partition("=")
    names = tuple(name.strip() for name in key.split("."))
    if not equals or len(names) != 2 or not all(names):
        remedy = "write for example fedavg.learning_rate=0.1,0.01"
        raise UsageError(f"{assignment!r} is no grid", where="--grid", remedy=remedy)
    try:
        return names, _loads(f"values = [{text}]")["values"]
    except _Beyond as error:
        raise UsageError(str(error), where="--grid", remedy="correct it") from None
    except tomllib.TOMLDecodeError:
        return names, [_value(part) for part in text.split(",") if part.strip()]


class _Beyond(Exception):
    """TOML that is none of what settings are made of."""


def _loads(text: str) -> Document:
    """TOML, but neither nested beyond what Python can follow nor with numbers beyond what it reads."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _Beyond("is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise _Beyond("holds a number of thousands of digits") from None


def _value(text: str) -> object:
    """As TOML writes it, and plain text where it is not TOML."""
    try:
        return _loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def put(document: Document, names: Iterable[str], value: object) -> None:
    """Set document[a][b] and make the tables on the way."""
    *tables, last = names
    at = document
    for i, name in enumerate(tables):
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            place = ".".join(tables[: i + 1])
            remedy = f"set {place} itself"
            raise ConfigError(f"{place} is no table, so that {last!r} cannot be set in it", remedy=remedy)
    at[last] = value


def check(document: Mapping[str, object], where: str) -> Config:
    """The settings, or an error about the first that is wrong."""
    document, data = dict(document), document.get("data")
    if isinstance(data, dict) and isinstance(data.get("tasks"), dict):
        document["data"] = {**data, "tasks": _as_tables(data["tasks"], where)}
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise _sentence(dict(error.errors()[0]), where) from None


def _as_tables(by_kind: Mapping[str, object], where: str) -> list[Document]:
    """`tasks.binary = ["sick"]` as the tables that tasks with options are written as."""
    tables = []
    for kind, names in by_kind.items():
        place = f"{where}, data.tasks.{kind}"
        if kind not in KINDS:
            raise ConfigError("is no kind of task", where=place, remedy=nearest(kind, KINDS))
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"is {names!r}", where=place, remedy="give a list of columns such as ['pulse']")
        tables += [{"name": name, "kind": kind} for name in names]
    return tables


def _sentence(error: Mapping[str, Any], where: str) -> ConfigError:
    location = tuple(error["loc"])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    place = f"{where}, {path}" if path else where
    kind = str(error["type"])
    if kind == "extra_forbidden":
        section, key = tuple(part for part in location[:-1] if isinstance(part, str)), str(location[-1])
        elsewhere = [s for s, model in _SECTIONS.items() if len(s) == 1 and key in model.model_fields]
        name = f"[{'.'.join(section)}]" if section else "the settings"
        remedy = nearest(key, _SECTIONS[section].model_fields)
        if elsewhere and not remedy.startswith("did you mean"):
            remedy = f"it belongs to [{elsewhere[0][0]}]"
        return ConfigError(f"is no key of {name}", where=place, remedy=remedy)
    if kind == "missing":
        return ConfigError("is missing", where=place, remedy="add it")
    wanted = _WANTED.get(kind.split("_")[0], error["msg"])
    given = error["input"]
    shown = "a table" if isinstance(given, dict) else str(given).lower() if isinstance(given, bool) else repr(given)
    return ConfigError(f"is {shown}", where=place, remedy=f"give {wanted}")
