"""`polyfed methods`, `names`, `datasets` and `schema`: what there is to choose from; `polyfed doctor`: is all there that
polyfed needs, and does it work on this machine? `polyfed examples` and `polyfed init`: the tables of the documentation as
files, and a config file for a table of yours."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.resources import files
from json import dumps
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

from polyfed.cli.arguments import LISTS, QUERY, TABLE, AsJson, argument, names_of, option, reject_no_folder, write_out
from polyfed.cli.output import emit, say, show_table
from polyfed.errors import ConfigError, PolyfedError, UsageError, nearest
from polyfed.files import SHOWN, write_whole

TABLES = {
    "hospitals.csv": "five made-up hospitals, three targets, gaps",
    "new_patients.csv": "new patients, to predict",
    "lugano.csv": "a hospital that joins later",
}
LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "safetensors", "pydantic", "typer", "rich")
EXTRAS = {
    "numba": "a faster inner loop",
    "palmerpenguins": "the demo",
    "flwr": "many machines",
    "torchvision": "images",
}


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

    checks = [CheckDocument(name=n, ok=ok, required=required, detail=d) for n, ok, required, d in _checks()]
    fine = all(check.ok for check in checks if check.required)
    if json:
        emit(DoctorDocument(ok=fine, checks=checks))
    else:
        rows = [[c.name, "ok" if c.ok else "MISSING" if c.required else "not there", c.detail] for c in checks]
        show_table("polyfed doctor", ["what", "state", "detail"], rows, left=3)
    if not fine:
        failed = next(check for check in checks if check.required and not check.ok)
        raise PolyfedError(f"{failed.name} is not as it must be ({failed.detail})", remedy="install polyfed anew")


def _checks() -> Iterator[tuple[str, bool, bool, str]]:
    yield "python", sys.version_info >= (3, 11), True, f"{platform.python_version()}, {platform.platform(terse=True)}"
    for name in (*LIBRARIES, "jinja2"):
        version = _version(name)
        yield name, version is not None, True, version or "not installed"
    for name, purpose in EXTRAS.items():
        version = _version(name)
        yield name, version is not None, False, f"{version or 'not installed'}; for {purpose}"
    threads = "torch:get_num_threads"
    yield _tried("threads", lambda: f"torch uses {resolve_name(threads)()}; a GPU is not needed")
    yield _tried("write access", _write_access)
    yield _tried("a run from end to end", _tiny_run)


def _tried(name: str, look: Callable[[], str]) -> tuple[str, bool, bool, str]:
    try:
        return name, True, True, look()
    except Exception as error:
        return name, False, True, " ".join(f"{type(error).__name__}: {error}".split())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _write_access() -> str:
    here = Path.cwd()
    with tempfile.TemporaryFile(dir=here):
        return f"{here} can be written"


def _tiny_run() -> str:
    from polyfed.data.datasets import load_dataset
    from polyfed.engine import load, simulate

    with tempfile.TemporaryDirectory() as folder:
        data = load_dataset("synthetic", n_clients=2, n_regression=10, n_binary=10)
        run = simulate(data, rounds=2, seed=0, folder=Path(folder) / "run")
        again = load(Path(folder) / "run")
        here, there = (r.client(run.clients[0]).predict([[50.0]])["regression"].mean[0] for r in (run, again))
        if here != there:
            raise PolyfedError("a run that was stored and loaded predicts other numbers")
    return "2 clients, 2 rounds, stored, loaded, predicted"


def examples(folder: Annotated[Path, argument("Where they are written.")] = Path("examples")) -> None:
    """Write the tables that the documentation uses into a folder."""
    for name in TABLES:
        path = folder / name
        if path.exists() and (not path.is_file() or path.read_bytes() != _content(name)):
            raise UsageError("another file of this name is there", where=path, remedy="name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in TABLES.items():
        write_whole(folder / name, _content(name), SHOWN)
        say(f"{folder / name}: {what}")


def _content(name: str) -> bytes:
    """A table as the wheel brings it; in a clone it lies in `examples`."""
    brought = files("polyfed") / "examples" / name
    return brought.read_bytes() if brought.is_file() else (Path(__file__).parents[3] / "examples" / name).read_bytes()


def init(
    data: Annotated[str, argument(TABLE, "DATA")],
    out: Annotated[Path, option("The file to write.", "FILE")] = Path("polyfed.toml"),
    query: Annotated[str | None, option(QUERY, "SQL")] = None,
    json: AsJson = False,
) -> None:
    """Write a commented config file for a table: guesses the client column and the kinds of the targets."""
    from polyfed.cli.documents import GuessDocument, InitDocument
    from polyfed.experiments.guessing import guess
    from polyfed.experiments.toml_text import config_text

    if out.exists():
        raise UsageError("is there already", where=out, remedy="remove it, or choose another --out")
    reject_no_folder(out)
    found, remarks = guess(data, query)
    write_out(out, config_text(found, data, out, query).encode())
    if json:
        guesses = [GuessDocument(**vars(guess)) for guess in found]
        client = next((guess.column for guess in found if guess.role == "client"), None)
        return emit(InitDocument(out=str(out), client=client, guesses=guesses, remarks=remarks))
    rows = [[g.column, g.role, g.why] for g in found]
    show_table(f"What {data} seems to hold", ["column", "guess", "why"], rows, left=3)
    for remark in remarks:
        say(remark)
    say(f"Correct the guesses in {out}, then: polyfed run {out}")
