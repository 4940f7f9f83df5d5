"""What a run found, for other programs, made from its folder alone: tables of scores and of predictions, and runs in MLflow and
TensorBoard (options, and by round the scores as means over the clients, what the clients report, and the bytes sent)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.errors import DataError, MissingExtraError, UsageError
from polyfed.folders.documents import read_document
from polyfed.folders.lines import read_events
from polyfed.folders.results_file import read_results
from polyfed.folders.schemas import RunDocument

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("mean", "std", "lower", "upper")
EXPERIMENT = "polyfed"  # in MLflow
LONGEST = 500  # characters of an option; MLflow takes no more
BATCH = 1000  # metrics that MLflow takes at a time
COLUMNS = ["client", "task", "part", "true", *NUMBERS, "true_class", "predicted_class", "probability"]


def scores_table(folder: Path) -> pd.DataFrame:
    """Every score of every client in every evaluation: round, part, model, client, task, metric, value."""
    from polyfed.engine.tables import history

    table = history(read_events(folder))
    if table.empty:
        raise DataError("nothing has been evaluated yet", where=folder, remedy="wait until the run evaluates")
    return table


def predictions_table(folder: Path) -> pd.DataFrame:
    """One line for each label that the run was measured on; numbers have other columns than classes."""
    import pandas as pd

    results = read_results(folder)
    lines = [
        {"client": client, "task": task, "part": results["part"], **line}
        for client, of_client in (results.get("predictions") or {}).items()
        for task, columns in of_client.items()
        for line in _lines(columns, results["tasks"][task]["classes"])
    ]
    if not lines:
        raise DataError("the run was measured on no label", where=folder, remedy="give it a split with test rows")
    return pd.DataFrame(lines, columns=COLUMNS)


def _lines(columns: dict[str, Any], classes: list[object] | None) -> Iterator[dict[str, object]]:
    if columns.get("proba") is None:
        named = {"true": columns["y"], **{name: columns.get(name) or [None] * len(columns["y"]) for name in NUMBERS}}
        yield from (dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True))
        return
    for y, proba in zip(columns["y"], columns["proba"], strict=True):
        if y is None or None in proba or not classes:
            continue  # a model that has diverged says nothing
        top = int(proba[1] >= 0.5) if len(proba) == 2 else max(range(len(proba)), key=lambda k: proba[k])
        named = {"true_class": str(classes[int(y)]), "predicted_class": str(classes[top])}
        yield {**named, "probability": proba[top]}


def to_mlflow(folder: Path, uri: str) -> str:
    """The run in a folder as one of MLflow's, at this tracking URI; its id there."""
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ImportError:
        raise MissingExtraError("MLflow is not installed", remedy="pip install 'polyfed[mlflow]'") from None

    options = _options(folder)
    figures = [Metric(_name(name), value, 0, step) for name, step, value in _figures(folder)]
    try:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(EXPERIMENT)
        place = client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        made = client.create_run(place, run_name=folder.resolve().name).info.run_id
        params = [Param(_name(name), str(value)[:LONGEST]) for name, value in options.items()]
        for start in range(0, max(len(figures), 1), BATCH):
            client.log_batch(made, figures[start : start + BATCH], params if start == 0 else [])
        if (folder / "report.html").is_file():
            client.log_artifact(made, str(folder / "report.html"))
        client.set_terminated(made)
    except Exception as error:  # whatever a server, a database or a disk may answer
        reported = " ".join(str(error).split()) or type(error).__name__
        remedy = "give another --mlflow"
        raise UsageError(f"MLflow rejected the run ({reported[:300]})", where=uri, remedy=remedy) from error
    return made


def to_tensorboard(folder: Path, logdir: Path) -> Path:
    """The run in a folder as TensorBoard reads it, below `logdir`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("TensorBoard is not installed", remedy="pip install 'polyfed[tensorboard]'") from None

    options, place = _options(folder), logdir / folder.resolve().name
    if place.exists():
        raise UsageError("is there already", where=place, remedy="choose another --tensorboard")
    try:
        with SummaryWriter(str(place)) as writer:
            writer.add_text("options", "\n".join(f"    {name} = {value}" for name, value in options.items()))
            for name, step, value in _figures(folder):
                writer.add_scalar(name, value, step)
    except OSError as error:
        raise UsageError(f"cannot be written ({error.strerror})", where=place, remedy="choose another") from None
    return place


def _options(folder: Path) -> dict[str, object]:
    described = read_document(folder / "run.json", RunDocument)
    return {"method": described["method"], **described["options"], **described["settings"]}


def _figures(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(name, round, value) of all that changes from round to round; what is not finite is left out."""
    from polyfed.engine.tables import history, rounds

    events = read_events(folder)
    table: Any = history(events).dropna(subset=["value"])
    means = table.groupby(["part", "model", "task", "metric", "round"], sort=False)["value"].mean()
    for (part, model, task, metric, round), value in means.items():
        prefix = part if model == "personal" else f"{part} {model}"
        yield f"{prefix}/{task}/{metric}", int(round), float(value)
    by_round: Any = rounds(events)[["bound", "bytes_up", "bytes_down", "rejected"]].astype(float)
    for name, column in by_round.items():
        for round, value in column.dropna().items():
            yield f"rounds/{name}", int(round), float(value)


def _name(text: str) -> str:
    """A name that MLflow takes: letters, digits and a few marks."""
    return re.sub(r"[^\w\-./ ]", "_", text, flags=re.ASCII)[:250]
