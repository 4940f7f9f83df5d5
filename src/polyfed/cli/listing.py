"""`polyfed methods`, `names`, `datasets` and `schema`: what there is to choose from; `polyfed doctor`: does it work here?"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from json import dumps
from typing import Annotated

from polyfed.cli.arguments import LISTS, AsJson, argument, names_of
from polyfed.cli.doctor import examined
from polyfed.cli.output import emit, say, show_table
from polyfed.errors import ConfigError, PolyfedError, nearest


def names(
    what: Annotated[
        str | None,
        argument("One of methods, kernels, kinds, datasets, scalings, aggregations; all if not given.", "[WHAT]"),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the names of methods, kernels, kinds of tasks and more."""
    from polyfed.cli.documents import NamesDocument

    if what is not None and what not in LISTS:
        raise ConfigError(f"there is no list of {what!r}", remedy=nearest(what, LISTS))
    found = {key: names_of(key) for key in LISTS if what in (None, key)}
    if json:
        return emit(NamesDocument(names=found))
    rows = [[key, ", ".join(of_key), LISTS[key][1]] for key, of_key in found.items()]
    show_table("Names", ["of", "names", "where they are given"], rows, left=3)


def datasets(json: AsJson = False) -> None:
    """List the data sets that polyfed brings, for run --dataset NAME."""
    from polyfed.cli.documents import DatasetsDocument, EntryDocument, OptionDocument
    from polyfed.data.datasets import DATASETS

    entries = [
        EntryDocument(
            name=name,
            summary=(inspect.getdoc(made) or "").partition("\n")[0],
            options=[
                OptionDocument(name=option.name, default=option.default, help="")
                for option in inspect.signature(made).parameters.values()
            ],
        )
        for name, made in DATASETS.items()
    ]
    if json:
        return emit(DatasetsDocument(datasets=entries))
    rows = [[e.name, e.summary, ", ".join(f"{o.name}={o.default}" for o in e.options)] for e in entries]
    show_table("Data sets", ["name", "what it is", "options (--set data.options.NAME=...)"], rows, left=3)


def methods(
    name: Annotated[str | None, argument("A method, to see its options.", "[NAME]", names="methods")] = None,
    json: AsJson = False,
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
                OptionDocument(name=option.name, default=_default(option), help=_help(made).get(option.name, ""))
                for option in (fields(made) if is_dataclass(made) else ())
            ],
        )
        for called, made in known.items()
        if name in (None, called)
    ]
    if json:
        return emit(MethodsDocument(methods=entries))
    rows: list[list[object]] = [[e.name, e.summary, len(e.options)] for e in entries]
    show_table("Methods", ["name", "what it is", "options"], rows, left=2)
    alike: dict[str, list[EntryDocument]] = {}
    for entry in entries:  # methods with the same options and defaults are shown once
        alike.setdefault(repr([(option.name, option.default) for option in entry.options]), []).append(entry)
    for group in alike.values():
        rows = [[option.name, option.default, option.help] for option in group[0].options]
        title = f"Options of {', '.join(entry.name for entry in group)}"
        show_table(title, ["option", "default", "what it is"], rows, left=3)


def _default(option: Field[object]) -> object:
    default = option.default_factory() if option.default_factory is not MISSING else option.default
    return None if default is MISSING else list(default) if isinstance(default, tuple) else default


def _help(made: type) -> dict[str, str]:
    """Option → what the docstring of the method, or of the one it is derived from, says of it."""
    found: dict[str, str] = {}
    for kind in reversed(made.__mro__):
        text = (kind.__doc__ or "").partition("Args:")[2]
        for listed, said in re.findall(r"^ {8}([\w, ]+): (.+(?:\n {12}.+)*)", text, re.M):
            found |= {name.strip(): " ".join(said.split()).rstrip(".") for name in listed.split(",")}
    return found


def schema(name: Annotated[str | None, argument("A command; all of them if not given.", "[COMMAND]")] = None) -> None:
    """Print the JSON schema of what a command prints with --json."""
    from polyfed.cli.deploy_documents import DEPLOY_DOCUMENTS
    from polyfed.cli.documents import DOCUMENTS

    known = {**DOCUMENTS, **DEPLOY_DOCUMENTS}
    if name is not None and name not in known:
        raise ConfigError(f"command {name!r} prints no document", remedy=nearest(name, known))
    schemas = {command: model.model_json_schema() for command, model in known.items() if name in (None, command)}
    say(dumps(schemas if name is None else schemas[name], indent=2))


def doctor(json: AsJson = False) -> None:
    """Check the installation: versions, threads, write access, and a tiny run from end to end."""
    from polyfed.cli.documents import CheckDocument, DoctorDocument

    checks = [CheckDocument(name=n, ok=ok, required=required, detail=d) for n, ok, required, d in examined()]
    fine = all(check.ok for check in checks if check.required)
    if json:
        emit(DoctorDocument(ok=fine, checks=checks))
    else:
        rows = [[c.name, "ok" if c.ok else "MISSING" if c.required else "not there", c.detail] for c in checks]
        show_table("polyfed doctor", ["what", "state", "detail"], rows, left=3)
    if not fine:
        failed = next(check for check in checks if check.required and not check.ok)
        raise PolyfedError(f"{failed.name} is not as it must be ({failed.detail})", remedy="install polyfed anew")
