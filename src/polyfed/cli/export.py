"""`polyfed report` and `polyfed watch`: one page about runs; `polyfed export`: what a run found, for other programs, and a
client's model as one file. The report room is loaded when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from polyfed.cli.arguments import (
    AllowCode,
    AsJson,
    RunFolder,
    argument,
    load_run,
    option,
    reject_no_folder,
    reject_no_run,
)
from polyfed.cli.output import emit, note, say
from polyfed.cli.predict import reject_odd_end, write_table
from polyfed.errors import DataError, MissingExtraError, UsageError


def report(
    runs: Annotated[list[Path], argument("Run folders, or folders of them.", "RUN...")],
    out: Annotated[Path | None, option("The file. By default report.html in the first folder.", "FILE")] = None,
    json: AsJson = False,
) -> None:
    """Write a self-contained HTML report of one run or several."""
    from polyfed.cli.documents import ReportDocument

    folders: list[Path] = []
    for given in runs:  # the folder itself, or the runs in it, as `compare` leaves them
        inside = sorted(path.parent for path in given.glob("*/run.json")) if given.is_dir() else []
        if not inside or (given / "run.json").exists():
            reject_no_run(given)
            inside = [given]
        folders += inside
    out = out or runs[0] / "report.html"
    reject_no_folder(out)
    page = _report_room().write_report(folders, out)
    if json:
        emit(ReportDocument(runs=[str(folder) for folder in folders], out=str(page)))
    else:
        say(f"The report is {page}")


def watch(
    run: Annotated[Path, argument("Folder of the run; it may be about to begin.", "RUN")],
    port: Annotated[int, option("Port of the page on this machine; 0 for any that is free.", min=0, max=65535)] = 8765,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document when the page is there.")] = False,
) -> None:
    """Show a run live in the browser, until Ctrl-C."""
    if run.is_file():
        raise DataError("is a file, not the folder of a run", where=run, remedy="give the folder of a run")

    def ready(url: str) -> None:
        from polyfed.cli.documents import WatchDocument

        if json:
            emit(WatchDocument(run=str(run), url=url))
        else:
            say(f"{run} is shown at {url} (Ctrl-C ends it)")

    _report_room().serve(run, port, on_ready=ready)


def try_report(folders: Sequence[Path], out: Path, **more: object) -> Path | None:
    """The report, or a line that says why there is none: the run itself is safe."""
    try:
        return _report_room().write_report(list(folders), out, **more)
    except Exception as error:
        note(f"warning: no report was written: {' '.join(str(error).split())}")
        return None


def _report_room() -> ModuleType:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module("polyfed.report")
    except ImportError as error:
        what = f"reports need {error.name or 'a package'}, which is not installed"
        raise MissingExtraError(what, remedy=f"pip install {error.name or 'polyfed'}") from None


def export(
    run: RunFolder,
    scores: Annotated[
        Path | None, option("Every score of every client and round, as .csv or .parquet.", "FILE")
    ] = None,
    predictions: Annotated[
        Path | None, option("The predictions that were scored, as .csv or .parquet.", "FILE")
    ] = None,
    model: Annotated[Path | None, option("A client's model as one file, for polyfed.load_model.", "FILE")] = None,
    client: Annotated[str | None, option("Whose model.", "NAME")] = None,
    mlflow: Annotated[str | None, option("Log the run at this tracking URI of MLflow.", "URI")] = None,
    tensorboard: Annotated[Path | None, option("Log the run below this folder for TensorBoard.", "DIR")] = None,
    allow_code: AllowCode = None,
    json: AsJson = False,
) -> None:
    """Hand over a run: scores and predictions as tables, a model as a file, or to MLflow and TensorBoard."""
    from polyfed.cli.documents import ExportDocument
    from polyfed.experiments import exporting

    reject_no_run(run)
    if all(given is None for given in (scores, predictions, model, mlflow, tensorboard)):
        remedy = "give --scores, --predictions, --model, --mlflow or --tensorboard"
        raise UsageError("it is not said what to export", remedy=remedy)
    for table in (scores, predictions):
        reject_odd_end(table)
    if model is None and client is not None:
        raise UsageError("--client is given without --model", remedy="say where the model goes with --model FILE")
    written: dict[str, str] = {}
    tables = {"scores": (scores, exporting.scores_table), "predictions": (predictions, exporting.predictions_table)}
    for what, (out, table_of) in tables.items():
        if out is not None:
            write_table(table_of(run), out, choose="file")
            written[what] = str(out)
    if model is not None:
        written["model"], written["client"] = str(model), _write_model(run, client, model, allow_code)
    if mlflow is not None:
        written["mlflow"] = exporting.to_mlflow(run, mlflow)
    if tensorboard is not None:
        written["tensorboard"] = str(exporting.to_tensorboard(run, tensorboard))
    if json:
        return emit(ExportDocument.model_validate({"run": str(run), **written}))
    for what in tables:
        if what in written:
            say(f"The {what} are in {written[what]}")
    if model is not None:
        of_client = f"The model of {written['client']} is in {model}"
        say(f"{of_client}; it holds this client's training rows, so keep it as private")
    if mlflow is not None:
        say(f"MLflow has it as run {written['mlflow']}")
    if tensorboard is not None:
        say(f"TensorBoard finds it in {written['tensorboard']}: tensorboard --logdir {tensorboard}")


def _write_model(run: Path, client: str | None, path: Path, allow_code: list[str] | None) -> str:
    from polyfed.engine.model_file import write_model

    reject_no_folder(path, "--model")
    if path.is_dir():
        raise UsageError("is a folder", where=path, remedy=f"give a file, such as {path / 'model.safetensors'}")
    loaded = load_run(run, allow_code)
    if client is None:
        if len(loaded.clients) != 1:
            known = ", ".join(loaded.clients[:10]) + (", ..." if len(loaded.clients) > 10 else "")
            raise UsageError("it is not said whose model to export", remedy=f"give --client with one of {known}")
        client = loaded.clients[0]
    write_model(loaded, client, path)
    return client
