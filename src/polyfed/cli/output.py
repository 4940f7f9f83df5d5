"""What a command says: one JSON document, or tables and sentences; both on stdout, and all else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pydantic import BaseModel

    from polyfed.folders.lines import Event

WIDTH = 120  # of tables that go into a file
MOST_LINES = 20  # clients in a table


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


def show_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    left: int = 1,
    closing: Sequence[Sequence[object]] = (),
) -> None:
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


def show_scores(
    title: str, scores: pd.DataFrame, guessed: pd.DataFrame, skills: pd.DataFrame, kinds: Mapping[str, str]
) -> None:
    """A run's `summary` of headline metrics, beside each its "baseline" in brackets, and below them the whole and "skill"."""
    from polyfed.report.templates import guess_of

    def beside(of_scores: Any, of_guess: Any) -> list[str]:
        pairs = [(number(v), number(of_guess.get((task, "baseline")))) for (task, _), v in of_scores.items()]
        return [value if guess == "-" else f"{value} ({guess})" for value, guess in pairs]

    known = {task for task, _ in guessed.columns}
    headings = [
        f"{task} {metric} ({guess_of(kinds[task])})" if task in known else f"{task} {metric}"
        for task, metric in scores.columns
    ]
    of_clients = guessed.reindex(scores.index)
    rows = [[client, *beside(scores.loc[client], of_clients.loc[client])] for client in scores.index]
    if len(rows) > MOST_LINES:
        rows = [*rows[:MOST_LINES], [f"... and {len(rows) - MOST_LINES} more"]]
    closing = [["mean", *beside(scores.mean(), guessed.mean())], ["std", *map(number, scores.std())]]
    if len(skills.columns):
        middle = skills.median()
        closing.append(["median skill", *(number(middle.get((task, "skill"))) for task, _ in scores.columns)])
    show_table(title, ["client", *headings], rows, closing=closing)


def say_doubts(events: Sequence[Event]) -> None:
    from polyfed.report.doubts import doubts
    from polyfed.report.folders import History

    history = History()
    for event in events:
        history.add(event)
    for line in doubts(history):
        say(f"warning: {line}")
