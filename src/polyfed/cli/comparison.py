"""What `compare` and `demo` share: play the cells, show the table, write the report."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.cli.output import emit, note, number, say, show_table
from polyfed.cli.progress import progress_bar
from polyfed.cli.reporting import try_report
from polyfed.errors import Interrupted, PolyfedError, UsageError

if TYPE_CHECKING:
    from polyfed.data import Federation
    from polyfed.experiments.comparing import Cell, Outcome
    from polyfed.experiments.config import Config


def run_comparison(
    config: Config,
    folder: Path,
    where: str,
    *,
    argv: Sequence[str],
    jobs: int = 1,
    report: bool = True,
    json: bool = False,
    quiet: bool = False,
    command: str = "compare",
) -> None:
    """Everything from the settings to the table."""
    from polyfed.experiments.building import build_federation
    from polyfed.experiments.comparing import cells

    if folder.is_file() or (folder / "run.json").exists():
        raise UsageError("is not a folder for comparisons", where=str(folder), remedy="choose another with --out")
    federation = build_federation(config.data, where)
    todo = cells(config, federation, folder, where)
    try:
        done = _play(todo, federation, where, jobs, argv, quiet)
    except KeyboardInterrupt:
        raise Interrupted("stopped", where=str(folder), remedy="the same command goes on with what is left") from None
    good = [outcome.cell for outcome in done if outcome.error is None]
    failed = [outcome.error for outcome in done if outcome.error is not None]
    if not good:
        raise failed[0]
    page = try_report([cell.folder for cell in good], folder / "report.html") if report else None
    document = _document(folder, todo, {outcome.cell.folder: outcome for outcome in done}, page, command)
    emit(document) if json else _show(document)
    if failed:
        raise PolyfedError(f"{len(failed)} of {len(todo)} runs failed, the first with: {str(failed[0]).rstrip('.')}")


def _play(
    todo: Sequence[Cell], federation: Federation, where: str, jobs: int, argv: Sequence[str], quiet: bool
) -> list[Outcome]:
    from polyfed.experiments.comparing import play

    with ExitStack() as stack:
        bars: dict[Path, Any] = {}

        def on_event(cell: Cell, event: dict[str, Any]) -> None:
            if cell.folder not in bars:
                stack.close()  # one bar at a time; those before it stay on the screen
                label = f"{cell.method}, seed {cell.seed}"
                bar = progress_bar(cell.config.run.rounds, label=label, quiet=quiet)
                bars[cell.folder] = stack.enter_context(bar)
            bars[cell.folder](event)

        done = []
        for outcome in play(todo, federation, where, jobs=jobs, on_event=on_event, command=argv):
            done.append(outcome)
            if outcome.error is not None:
                stack.close()
                note(f"warning: {outcome.cell.folder.name} failed: {outcome.error}")
        return done


def _document(
    folder: Path, todo: Sequence[Cell], outcomes: dict[Path, Outcome], page: Path | None, command: str
) -> Any:
    from polyfed.cli import documents
    from polyfed.experiments.comparing import scores
    from polyfed.experiments.ranking import ranked
    from polyfed.metrics import HEADLINE

    found = {cell.folder: {} if outcomes[cell.folder].error else scores(cell.folder) for cell in todo}
    of_seeds: dict[str, list[Any]] = {}
    for cell in todo:
        of_seeds.setdefault(cell.method, []).append(found[cell.folder])
    first = next(cell.folder for cell in todo if outcomes[cell.folder].error is None)
    with (first / "events.jsonl").open() as file:
        kinds = json_module.loads(file.readline())["tasks"]
    metric_of = {task: HEADLINE[kind] for task, kind in kinds.items()}
    kind = documents.DemoDocument if command == "demo" else documents.CompareDocument
    return kind(
        folder=str(folder),
        tasks=kinds,
        metrics=metric_of,
        cells=[
            documents.CellDocument(
                method=cell.method,
                seed=cell.seed,
                folder=str(cell.folder),
                error=str(error) if (error := outcomes[cell.folder].error) else None,
                scores={task: dict(metrics) for task, metrics in found[cell.folder].items()},
            )
            for cell in todo
        ],
        table={
            method: documents.LineDocument(
                scores={task: documents.ScoreDocument(**score._asdict()) for task, score in line.scores.items()},
                rank=None if math.isnan(line.rank) else line.rank,
            )
            for method, line in ranked(of_seeds, metric_of).items()
        },
        report=None if page is None else str(page),
    )


def _show(document: Any) -> None:
    headings = ["method", *(f"{task} {metric}" for task, metric in document.metrics.items()), "mean rank"]
    rows = []
    for method, line in document.table.items():
        cells = [_cell(line.scores.get(task)) for task in document.metrics]
        rows.append([method, *cells, number(line.rank)])
    seeds = len({cell.seed for cell in document.cells})
    title = f"Test rows, mean over the clients{f' and ± spread over {seeds} seeds' if seeds > 1 else ''}; (rank)"
    show_table(title, headings, rows)
    say(f"The runs are in {document.folder}")
    if document.report:
        say(f"The report is {document.report}")


def _cell(score: Any) -> str:
    if score is None:
        return "-"
    spread = f" ± {number(score.spread)}" if score.seeds > 1 else ""
    return f"{number(score.mean)}{spread} ({score.rank:g})"
