"""What came of a comparison, as a document and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.cli.output import number, say, show_table

if TYPE_CHECKING:
    from polyfed.experiments.comparing import Cell, Outcome
    from polyfed.experiments.tuning import Choice


def is_chosen(cell: Cell, choices: Mapping[str, Choice]) -> bool:
    """Whether the table has the cell: that of a method without a grid always."""
    return cell.method not in choices or choices[cell.method].chosen == cell.options


def describe(
    folder: Path, outcomes: Sequence[Outcome], choices: Mapping[str, Choice], page: Path | None, command: str
) -> Any:
    """The document; there is at least one outcome that is no failure."""
    from polyfed.cli import documents
    from polyfed.experiments.comparing import scores
    from polyfed.experiments.ranking import ranked
    from polyfed.metrics import HEADLINE

    found = {one.cell.folder: {} if one.error else scores(one.cell.folder) for one in outcomes}
    of_seeds: dict[str, list[Any]] = {one.cell.method: [] for one in outcomes}
    for one in outcomes:
        if is_chosen(one.cell, choices):
            of_seeds[one.cell.method].append(found[one.cell.folder])
    kinds = _kinds(next(one.cell.folder for one in outcomes if one.error is None))
    metric_of = {task: HEADLINE[kind] for task, kind in kinds.items()}
    kind = documents.DemoDocument if command == "demo" else documents.CompareDocument
    seeds = list(dict.fromkeys(one.cell.seed for one in outcomes))
    return kind(
        folder=str(folder),
        tasks=kinds,
        metrics=metric_of,
        cells=[
            documents.CellDocument(
                method=one.cell.method,
                seed=one.cell.seed,
                options=dict(one.cell.options),
                chosen=is_chosen(one.cell, choices),
                folder=str(one.cell.folder),
                error=str(one.error) if one.error else None,
                scores={task: dict(metrics) for task, metrics in found[one.cell.folder].items()},
            )
            for one in outcomes
        ],
        tuning={
            method: documents.TuningDocument(
                grid=choice.grid,
                combinations=[
                    documents.CombinationDocument(
                        options=options, loss=mean, by_seed=dict(zip(seeds, losses, strict=True))
                    )
                    for options, mean, losses in zip(choice.combinations, choice.means, choice.losses, strict=True)
                ],
                chosen=choice.chosen,
            )
            for method, choice in choices.items()
        },
        table={
            method: documents.LineDocument(
                scores={task: documents.ScoreDocument(**score._asdict()) for task, score in line.scores.items()},
                rank=None if math.isnan(line.rank) else line.rank,
            )
            for method, line in ranked(of_seeds, metric_of).items()
        },
        report=None if page is None else str(page),
    )


def tried(choices: Mapping[str, Choice]) -> list[tuple[str, str, str, bool]]:
    """A line for each combination of each grid: method, options, mean validation loss, whether it is chosen."""
    from polyfed.experiments.grid import written

    return [
        (method, written(options), number(mean) if math.isfinite(mean) else "-", options == choice.chosen)
        for method, choice in choices.items()
        for options, mean in zip(choice.combinations, choice.means, strict=True)
    ]


def show(document: Any, choices: Mapping[str, Choice]) -> None:
    """The choice, if there was one, and the table."""
    from polyfed.experiments.grid import written

    if choices:
        rows = [[method, options, loss, "chosen" if chosen else ""] for method, options, loss, chosen in tried(choices)]
        title = "Validation rows, by which the options are chosen: log loss, mean over the clients, sum over the tasks"
        show_table(title, ["method", "options", "loss", ""], rows, left=2)
    headings = ["method", *(f"{task} {metric}" for task, metric in document.metrics.items()), "mean rank"]
    rows = []
    for method, line in document.table.items():
        best = choices[method].chosen if method in choices else None
        cells = [_cell(line.scores.get(task)) for task in document.metrics]
        rows.append([f"{method} ({written(best)})" if best else method, *cells, number(line.rank)])
    seeds = len({cell.seed for cell in document.cells})
    title = f"Test rows, mean over the clients{f' and ± spread over {seeds} seeds' if seeds > 1 else ''}; (rank)"
    show_table(title, headings, rows)
    say(f"The runs are in {document.folder}")
    if document.report:
        say(f"The report is {document.report}")


def _kinds(folder: Path) -> dict[str, str]:
    from polyfed.folders.lines import read_events

    return read_events(folder)[0]["tasks"]


def _cell(score: Any) -> str:
    if score is None:
        return "-"
    spread = f" ± {number(score.spread)}" if score.seeds > 1 else ""
    return f"{number(score.mean)}{spread} ({score.rank:g})"
