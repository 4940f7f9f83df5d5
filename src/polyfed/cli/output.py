"""What a command says: one JSON document, or tables and sentences; both on stdout, and all else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel


Rows = Sequence[Sequence[object]]  # of a table
WIDTH = 120  # of tables that go into a file


def say(text: str) -> None:
    """A line that is not cut to the width of the terminal, so that paths can be copied."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def emit(document: BaseModel) -> None:
    """The document as JSON; numbers that do not exist (the std of one run) or are not finite become null."""
    sys.stdout.write(document.model_dump_json(indent=2, by_alias=True) + "\n")


def by_command(module: str) -> dict[str, type[BaseModel]]:
    """Command → what it prints with --json, of the documents in a module."""
    made = [one for one in vars(sys.modules[module]).values() if "command" in getattr(one, "model_fields", {})]
    return {one.model_fields["command"].default: one for one in made}


def show_table(title: str, headings: Sequence[str], rows: Rows, *, left: int = 1, closing: Rows = ()) -> None:
    """A table whose first columns are texts, set to the left; what sums it up is `closing`, below a line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    say(title)  # above the table, not in it: a narrow table would break it
    table = Table()
    for i, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if i < left else "right", overflow="fold")
    for i, row in enumerate([*rows, *closing], start=1):
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row), end_section=i == len(rows))
    width = None if sys.stdout.isatty() else WIDTH
    Console(file=sys.stdout, width=width, highlight=False, markup=False).print(table)


def number(value: float | None) -> str:
    """Four digits, and a dash where there is none.

    >>> number(1234.567), number(0.01234), number(None)
    ('1235', '0.01234', '-')
    """
    if value is None or value != value:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
