"""`polyfed export`: what a run found, for other programs, and a client's model as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from polyfed.cli.arguments import (
    AllowCode,
    AsJson,
    RunFolder,
    load_run,
    option,
    reject_no_folder,
    reject_no_run,
)
from polyfed.cli.output import emit, say
from polyfed.cli.predict import reject_odd_end, write_table
from polyfed.errors import UsageError


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
