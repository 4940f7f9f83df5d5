"""`polyfed methods`: what there is to choose from."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any

import typer

from polyfed.cli.names import completion
from polyfed.cli.output import emit, show_table
from polyfed.errors import ConfigError, nearest


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="A method, to see its options.", metavar="[NAME]", autocompletion=completion("methods")),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the methods and their options."""
    from polyfed.cli.documents import EntryDocument, MethodsDocument, OptionDocument
    from polyfed.methods import known_methods

    known = known_methods()
    if name is not None and name not in known:
        raise ConfigError(f"method {name!r} is unknown", remedy=nearest(name, known))
    entries = [
        EntryDocument(
            name=called,  # that of a package of somebody else may differ from what the class says
            summary=getattr(made, "summary", ""),
            options=[
                OptionDocument(name=o.name, default=_default(o), help=_help(made).get(o.name, ""))
                for o in _options(made)
            ],
        )
        for called, made in known.items()
        if name in (None, called)
    ]
    if json:
        emit(MethodsDocument(methods=entries))
        return
    show_table(
        "Methods", ["name", "what it is", "options"], [[e.name, e.summary, len(e.options)] for e in entries], left=2
    )
    alike: dict[str, list[EntryDocument]] = {}
    for entry in entries:  # methods with the same options and defaults are shown once
        alike.setdefault(repr([(option.name, option.default) for option in entry.options]), []).append(entry)
    for group in alike.values():
        rows = [[option.name, _written(option.default), option.help] for option in group[0].options]
        names = ", ".join(entry.name for entry in group)
        show_table(f"Options of {names}", ["option", "default", "what it is"], rows, left=3)


def _options(made: type) -> list[Field[Any]]:
    return list(fields(made)) if is_dataclass(made) else []


def _default(option: Field[Any]) -> Any:
    default = option.default_factory() if option.default_factory is not MISSING else option.default
    return None if default is MISSING else list(default) if isinstance(default, tuple) else default


def _written(default: Any) -> str:
    return "" if default is None else str(default)


def _help(made: type) -> dict[str, str]:
    """Option → what the docstring of the method, or of the one it is derived from, says of it."""
    found: dict[str, str] = {}
    for kind in reversed(made.__mro__):
        text = (kind.__doc__ or "").partition("Args:")[2]
        for names, said in re.findall(r"^ {8}([\w, ]+): (.+(?:\n {12}.+)*)", text, re.M):
            found |= {name.strip(): " ".join(said.split()).rstrip(".") for name in names.split(",")}
    return found
