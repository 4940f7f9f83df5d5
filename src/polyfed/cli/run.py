"""`polyfed run`: from a table or a file of settings to a run folder, a table of scores and a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyfed.cli.arguments import AllowCode, AsJson, Quiet, WriteReport, argument, grouped, option, reject_no_run
from polyfed.cli.options import DataOptions, RunOptions, settings, with_scales
from polyfed.cli.output import emit, number, say, show_table
from polyfed.cli.pages import try_report
from polyfed.cli.progress import progress_bar
from polyfed.counting import in_bytes
from polyfed.defaults import METHOD
from polyfed.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from polyfed.cli.documents import RunDocument
    from polyfed.engine import Run

MOST_LINES = 20  # clients in a table
ENGINES = ("process", "flower-sim", "flower-ray")


@grouped
def command(
    context: typer.Context,
    data: DataOptions,
    how: RunOptions,
    config: Annotated[Path | None, argument("File of settings (TOML); see polyfed init.", "[CONFIG]")] = None,
    method: Annotated[str | None, option(f"Method ({METHOD}): see polyfed methods.", "NAME", names="methods")] = None,
    seed: Annotated[int | None, option("Seed of all that is random (0).", "N")] = None,
    out: Annotated[Path | None, option("Folder of the run. By default runs/<data>-<method>-<seed>.")] = None,
    resume: Annotated[Path | None, option("Go on with the run in this folder.", "DIR")] = None,
    allow_code: AllowCode = None,
    engine: Annotated[
        str, option("Execution backend: process, flower-sim or flower-ray.", "NAME", show_default=True)
    ] = "process",
    report: WriteReport = True,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a method on a table of yours, a config file or a data set."""
    from polyfed.experiments import running

    began, argv = time.perf_counter(), context.obj["argv"]
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r} is not known", where="--engine", remedy=nearest(engine, ENGINES))
    if resume is not None:
        on_flower = running.cut_off_on_flower(resume)
        go_on = _on_flower("resume", engine) if on_flower else running.resume
        # A run goes on as it was begun, but it may be longer.
        of_run = {f"--{name}": getattr(how, name) for name in ("sample", "aggregation", "workers", "set")}
        of_data = {f"--{name.replace('_', '-')}": value for name, value in vars(data).items()}
        others = {"--method": method, "--seed": seed, "--out": out, **of_data, **of_run, str(config): config}
        if given := [name for name, value in others.items() if value is not None]:
            remedy = "a run goes on as it was begun: leave it out"
            raise UsageError(f"{given[0]} is given beside --resume", remedy=remedy)
        folder, kept = resume, resume / "flower" / "server" if on_flower else resume
        reject_no_run(kept)
        rounds, completed = planned(kept, how.rounds)
        with progress_bar(rounds, completed=completed, quiet=quiet) as on_event:
            made = go_on(resume, how.rounds, on_event=on_event, command=argv, allow_code=allow_code or ())
    else:
        chosen, where = settings(config, data, how, extra={("method", "name"): method, ("run", "seed"): seed})
        folder = out or Path(chosen.run.folder or running.default_folder(chosen))
        running.reject_used(folder)  # before scales are chosen
        chosen = with_scales(chosen, where, quiet=quiet)
        start = running.start if engine == "process" else _on_flower("start", engine)
        with progress_bar(chosen.run.rounds, label=chosen.method.name, quiet=quiet) as on_event:
            made = start(chosen, folder, where, on_event=on_event, command=argv)
    page = try_report([folder], folder / "report.html") if report else None
    document = describe(made, folder, time.perf_counter() - began, page)
    emit(document) if json else _show(made, document)


def _on_flower(function: str, engine: str) -> Callable[..., Run]:
    """The function that begins a run on an engine of Flower, or goes on with it."""
    from polyfed.flower import simulate

    return partial(getattr(simulate, function), engine=engine)


def describe(run: Run, folder: Path, seconds: float, report: Path | None) -> RunDocument:
    from polyfed.cli.documents import Pooled, RunDocument
    from polyfed.data import DEPLOYED
    from polyfed.engine.storage import options_of

    scores: dict[str, dict[str, Pooled]] = {}
    with suppress(UsageError):  # there are no test rows
        table: Any = run.summary("all")  # pandas' own types are too wide to be of help
        for (task, metric), of in table.items():
            pooled = Pooled(mean=of.mean(), std=of.std(), clients=int(of.notna().sum()))
            scores.setdefault(task, {})[metric] = pooled
    rounds: Any = run.rounds
    return RunDocument(
        folder=str(folder),
        method=run.method.name,
        options=options_of(run.method),
        seed=run.settings.seed,
        rounds=run.federation_state.round,
        clients=run.clients,
        untrained=run.untrained,
        silent=run.silent,
        rejected=dict(run.prepared.round0.rejected),
        unknown={client: dict(tasks) for client, tasks in run.prepared.round0.unknown.items()},
        below=run.prepared.below(DEPLOYED),
        tasks={task.name: task.kind for task in run.prepared.spec.tasks},
        scores=scores,
        rejected_updates=int(rounds["rejected"].sum()),
        dropped={str(round): reason for round, reason in rounds["dropped"].dropna().items()},
        bytes_up=int(rounds["bytes_up"].sum()),
        bytes_down=int(rounds["bytes_down"].sum()),
        seconds=round(seconds, 3),
        report=None if report is None else str(report),
    )


def _show(run: Run, document: RunDocument) -> None:
    from polyfed.report.doubts import doubts, left_out
    from polyfed.report.folders import History

    title = f"{document.method}, round {document.rounds}, {len(document.clients)} clients, test rows"
    if not document.scores:
        say(f"{title}: there are none to measure on.")
    else:
        _show_scores(title, run, document.tasks)
        history = History()
        for event in run.events:
            history.add(event)
        for line in doubts(history):
            say(f"warning: {line}")
    if document.untrained:
        names = ", ".join(document.untrained[:5]) + (", ..." if len(document.untrained) > 5 else "")
        say(f"In no round was an update used of: {names}")
    for round, reason in document.dropped.items():
        say(f"Round {round} was dropped, and the model stayed as it was: {reason}")
    for line in left_out(document.model_dump()):
        say(line)
    rejected = f", {document.rejected_updates} updates rejected" if document.rejected_updates else ""
    traffic = f"{in_bytes(document.bytes_up)} up, {in_bytes(document.bytes_down)} down"
    say(f"{traffic}{rejected}, {document.seconds:.1f} s. The run is in {document.folder}")
    if document.report:
        say(f"The report is {document.report}")


def _show_scores(title: str, run: Run, kinds: Mapping[str, str]) -> None:
    """The headline metrics, beside each its "baseline" in brackets, and below them the whole and "skill"."""
    from polyfed.report.templates import guess_of

    tables: Any = [run.summary(metrics) for metrics in ("headline", ["baseline"], ["skill"])]
    scores, guessed, skills = tables

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


def planned(folder: Path, rounds: int | None) -> tuple[int, int]:
    """How many rounds there will be, and how many are completed, for the bar; an unsound folder is for others to reject."""
    from polyfed.folders.documents import read_document
    from polyfed.folders.lines import CHECKPOINTS, rounds_of
    from polyfed.folders.schemas import RunDocument

    try:
        wanted = rounds or read_document(folder / "run.json", RunDocument)["settings"]["rounds"]
        return wanted, max(rounds_of(folder / CHECKPOINTS, "json"), default=0)
    except DataError:
        return rounds or 0, 0
