"""The scores of a run as a table: each beside what a guess that costs nothing would have got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyfed.cli.output import number, show_table

MOST_LINES = 20  # clients in the table


def show_scores(title: str, scores: Any, guessed: Any, skills: Any, kinds: Mapping[str, str]) -> None:
    """Clients × headline metrics, in brackets the guess (mean, most frequent class), and below them the whole.

    The three tables are a run's `summary` of the headline metrics, of "baseline" and of "skill".
    """
    from polyfed.report.words import guess_of

    headings = ["client"]
    for task, metric in scores.columns:
        headings.append(f"{task} {metric} ({guess_of(kinds[task])})" if _has(guessed, task) else f"{task} {metric}")
    rows = [[client, *_beside(scores, guessed, client)] for client in scores.index]
    if len(rows) > MOST_LINES:
        rows = [*rows[:MOST_LINES], [f"... and {len(rows) - MOST_LINES} more"]]
    means, of_guess = scores.mean(), guessed.mean()
    closing = [["mean", *(_pair(value, of_guess.get((task, "baseline"))) for (task, _), value in means.items())]]
    closing.append(["std", *map(number, scores.std())])
    if len(skills.columns):
        middle = skills.median()
        closing.append(["median skill", *(number(middle.get((task, "skill"))) for task, _ in scores.columns)])
    show_table(title, headings, rows, closing=closing)


def _beside(scores: Any, guessed: Any, client: str) -> list[str]:
    return [
        _pair(
            scores.at[client, column], guessed.at[client, (column[0], "baseline")] if _has(guessed, column[0]) else None
        )
        for column in scores.columns
    ]


def _pair(value: float, of_guess: float | None) -> str:
    return number(value) if of_guess is None or of_guess != of_guess else f"{number(value)} ({number(of_guess)})"


def _has(guessed: Any, task: str) -> bool:
    return (task, "baseline") in guessed.columns


def say_doubts(events: Sequence[Mapping[str, Any]], say: Any) -> None:
    """A line for each reason not to trust the table."""
    from polyfed.report.doubts import doubts
    from polyfed.report.history import History

    history = History()
    for event in events:
        history.add(event)
    for line in doubts(history):
        say(f"warning: {line}")
