"""`polyfed run`: from a table or a file of settings to a run folder, a table of scores and a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyfed.cli.arguments import AllowCode, AsJson, Quiet, WriteReport, argument, grouped, option, reject_no_run
from polyfed.cli.export import try_report
from polyfed.cli.options import DataOptions, RunOptions, settings, with_scales
from polyfed.cli.output import emit, say, say_doubts, show_scores
from polyfed.cli.progress import progress_bar
from polyfed.counting import in_bytes
from polyfed.defaults import METHOD
from polyfed.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from polyfed.cli.documents import RunDocument
    from polyfed.engine import Run

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
        _reject_beside_resume(config, data, how, {"--method": method, "--seed": seed, "--out": out})
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
    table = _summary(run, "all")
    if table is not None:
        for (task, metric), column in table.items():
            scores.setdefault(task, {})[metric] = Pooled(
                mean=column.mean(), std=column.std(), clients=int(column.notna().sum())
            )
    rounds: Any = run.rounds  # pandas' own types are too wide to be of help
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
    from polyfed.report.doubts import left_out

    title = f"{document.method}, round {document.rounds}, {len(document.clients)} clients, test rows"
    table = _summary(run, "headline")
    if table is None:
        say(f"{title}: there are none to measure on.")
    else:
        show_scores(title, table, run.summary(["baseline"]), run.summary(["skill"]), document.tasks)
        say_doubts(run.events)
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


def _summary(run: Run, metrics: str | list[str]) -> Any:
    """The table of scores, or None if there are no test rows."""
    try:
        return run.summary(metrics)
    except UsageError:
        return None


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


def _reject_beside_resume(config: Path | None, data: DataOptions, how: RunOptions, others: dict[str, object]) -> None:
    """A run goes on as it was begun, but it may be longer."""
    given = [name for name, value in others.items() if value is not None]
    given += [f"--{name.replace('_', '-')}" for name, value in vars(data).items() if value is not None]
    given += [f"--{name}" for name in ("sample", "aggregation", "workers", "set") if getattr(how, name) is not None]
    given += [str(config)] if config is not None else []
    if given:
        raise UsageError(f"{given[0]} is given beside --resume", remedy="a run goes on as it was begun: leave it out")
