"""What a command says: one JSON document, or tables and sentences; both on stdout, and all else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

WIDTH = 120  # of tables that go into a file


def console() -> Console:
    """A console on stdout as it is now."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)


def say(text: str) -> None:
    """A line that is not cut to the width of the terminal, so that paths can be copied."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """A line beside the result."""
    sys.stderr.write(f"{text}\n")


def emit(document: BaseModel) -> None:
    """The document as JSON; numbers that are not finite become null."""
    sys.stdout.write(document.model_dump_json(indent=2, by_alias=True) + "\n")


def show_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    left: int = 1,
    closing: Sequence[Sequence[Any]] = (),
) -> None:
    """A table whose first columns are texts, set to the left; what sums it up is `closing`, below a line."""
    from rich.table import Table
    from rich.text import Text

    say(title)  # above the table, not in it: a narrow table would break it
    table = Table()
    for i, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if i < left else "right", overflow="fold")
    for i, row in enumerate([*rows, *closing], start=1):
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row), end_section=i == len(rows))
    console().print(table)


def number(value: float | None) -> str:
    """Four digits, and a dash where there is none.

    >>> number(1234.567), number(0.01234), number(None)
    ('1235', '0.01234', '-')
    """
    if value is None or value != value:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
