"""Options that several commands share; run folders and files as users name them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyfed.errors import DataError, UsageError, nearest
from polyfed.files import write_whole

if TYPE_CHECKING:
    from polyfed.engine import Run

# What is listed → where polyfed has the names, and where they are given.
LISTS = {
    "methods": ("polyfed.methods:known_methods", "--method, method.name; see polyfed methods"),
    "kernels": ("polyfed.gp.kernels:known_kernels", "--set method.kernel=, also as 'rbf + periodic'"),
    "kinds": ("polyfed.kinds:KINDS", "--regression, --binary, ..., data.tasks"),
    "datasets": ("polyfed.data.datasets:DATASETS", "--dataset; see polyfed datasets"),
    "scalings": ("polyfed.data.schema.coding:SCALINGS", "--scaling"),
    "aggregations": ("polyfed.engine.pipeline:known_parts", "--aggregation"),
}


def names_of(what: str) -> list[str]:
    found: Any = resolve_name(LISTS[what][0])  # a collection, or a function that returns one
    return list(found if isinstance(found, Collection) else found())


def completion(what: str) -> Callable[[str], list[str]]:
    """For the shell: the names that begin so; of several with commas between them, the last."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names_of(what) if name.startswith(last)]

    return complete


def option(
    text: str, metavar: str | None = None, *, names: str | None = None, panel: str | None = None, **more: Any
) -> object:
    """An option; the shell completes those of the `names` that polyfed lists."""
    complete = None if names is None else completion(names)
    return typer.Option(help=text, metavar=metavar, autocompletion=complete, rich_help_panel=panel, **more)


def argument(text: str, metavar: str | None = None, *, names: str | None = None) -> object:
    return typer.Argument(help=text, metavar=metavar, autocompletion=None if names is None else completion(names))


TABLE = "A table (CSV, Parquet, ...), a pattern, a folder with a file for each client, or a database's URL."
QUERY = "What is read, if the data are a database: SELECT ..."
Names = list[str] | None
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
WriteReport = Annotated[bool, option("Write report.html at the end.")]
Jobs = Annotated[int, option("Processes that share out the runs.", min=1)]
RunFolder = Annotated[Path, argument("Folder of the run.", "RUN")]
AllowCode = Annotated[
    Names,
    option("Run this code if the run or study names it as its network; may be given several times.", "MODULE:FACTORY"),
]


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the fields of its dataclass parameters, which are options that commands share, as its own.

    @grouped
    def run(data: DataOptions) -> None: ...       # polyfed run --client ...
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        own = [parameter]
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            own = inspect.signature(parameter.annotation, eval_str=True).parameters.values()
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]

    @functools.wraps(function)
    def command(**given: object) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        function(**given, **made)

    del command.__wrapped__  # or its own signature would be taken
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def reject_no_run(folder: Path) -> None:
    if not folder.is_dir():
        what = "is a file, not the folder of a run" if folder.exists() else "there is no such folder"
        near = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        remedy = nearest(folder.name, sorted(near)[:20]) if near else "give the folder of a run"
        raise DataError(what, where=folder, remedy=remedy)
    if not (folder / "run.json").is_file():
        raise DataError("there is no run in it", where=folder, remedy="give the folder of a run")


def reject_run(folder: Path, what: str) -> None:
    """An error if a folder for many runs is a run itself."""
    if folder.is_file() or (folder / "run.json").exists():
        raise UsageError(f"is not a folder for {what}", where=folder, remedy="choose another with --out")


def load_run(folder: Path, allow_code: list[str] | None = None) -> Run:
    reject_no_run(folder)
    from polyfed.engine import load

    run = load(folder, allow_code=allow_code or ())
    if not run.federation_state.server:  # of a node, before its first evaluation
        raise UsageError("there is no model yet", where=folder, remedy="wait until the study evaluates its clients")
    if run.federation_state.round == 0 and run.settings.rounds > 0:
        what = "no round has been completed"
        raise UsageError(what, where=folder, remedy=f"go on with: polyfed run --resume {folder}")
    return run


def reject_no_folder(out: Path, option: str = "--out") -> None:
    """An error unless the folder of a file that is to be written is there."""
    if not out.parent.is_dir():
        raise UsageError("there is no such folder", where=out.parent, remedy=f"make it, or choose another {option}")


def write_out(out: Path, content: bytes, choose: str = "--out") -> None:
    """A file that the user named, whole or not at all."""
    try:
        write_whole(out, content)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=out, remedy=f"choose another {choose}") from None
