"""`polyfed names`: what can be given where a name is asked for; and the same for the shell to complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from polyfed.cli.output import emit, show_table
from polyfed.errors import ConfigError, nearest


def _methods() -> list[str]:
    from polyfed.methods import known_methods

    return list(known_methods())


def _kernels() -> list[str]:
    from polyfed.gp.kernels import known_kernels

    return list(known_kernels())


def _kinds() -> list[str]:
    from polyfed.kinds import KINDS

    return list(KINDS)


def _datasets() -> list[str]:
    from polyfed.data.datasets import DATASETS

    return list(DATASETS)


def _scalings() -> list[str]:
    from polyfed.data.schema.coding import SCALINGS

    return list(SCALINGS)


def _aggregations() -> list[str]:
    from polyfed.engine.pipeline import known_parts

    return list(known_parts())


# What is listed → the names, and where they are given.
LISTS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "methods": (_methods, "--method, method.name; see polyfed methods"),
    "kernels": (_kernels, "--set method.kernel=, also as 'rbf + periodic'"),
    "kinds": (_kinds, "--regression, --binary, ..., data.tasks"),
    "datasets": (_datasets, "--dataset; see polyfed datasets"),
    "scalings": (_scalings, "--scaling"),
    "aggregations": (_aggregations, "--aggregation"),
}


def completion(what: str) -> Callable[[str], list[str]]:
    """For the shell: the names that begin so; of several with commas between them, the last."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in LISTS[what][0]() if name.startswith(last)]

    return complete


def command(
    what: Annotated[
        str | None,
        typer.Argument(
            help="One of methods, kernels, kinds, datasets, scalings, aggregations; all if not given.", metavar="[WHAT]"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the names of methods, kernels, kinds of tasks and more."""
    from polyfed.cli.documents import NamesDocument

    if what is not None and what not in LISTS:
        raise ConfigError(f"there is no list of {what!r}", remedy=nearest(what, LISTS))
    found = {key: names() for key, (names, _) in LISTS.items() if what in (None, key)}
    if json:
        emit(NamesDocument(names=found))
        return
    rows = [[key, ", ".join(names), LISTS[key][1]] for key, names in found.items()]
    show_table("Names", ["of", "names", "where they are given"], rows, left=3)
