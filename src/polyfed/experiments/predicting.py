"""New rows of a client, from a file to a table of predictions, scores where there are labels, and a warning sign.

The warning sign `<task>.ood` is the variance of the latent function at a row, in units of its median at the rows that the
client learned from: about 1 where the row is like them, large where the model knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.derived import comparisons, with_derived
from polyfed.data.table_files import Table, load_table
from polyfed.data.tables import read_client_table
from polyfed.errors import UnknownNameError, nearest
from polyfed.experiments.running import read_config
from polyfed.metrics import score

if TYPE_CHECKING:
    import pandas as pd

    from polyfed.engine import Run


@dataclass(frozen=True, eq=False)
class Predicted:
    """One row for each row given; task → metric → value where labels were given; task → kind."""

    table: pd.DataFrame
    scores: dict[str, dict[str, float | None]]
    kinds: dict[str, str]


def client_table(run: Run, source: Path) -> Table:
    """A file of one client, with the columns that the settings of the run derive."""
    table = load_table(source)
    if run.folder is not None and (run.folder / "config.toml").is_file():
        derived = comparisons(read_config(run.folder).data.derive)
        absent = [comparison for comparison in derived if comparison.name not in table.frame.columns]
        table = with_derived(table, absent, partly=True)
    return table


def predict_table(
    run: Run, source: Path, client: str, *, tasks: list[str] | None = None, level: float = 0.95
) -> Predicted:
    """Predictions of a client's model for the rows of a file."""
    import pandas as pd

    model = run.client(client)
    guest = run.guests is not None and client in run.guest_states
    study = run.guests if guest and run.guests is not None else run.study
    known = {task.name: task for task in study.agreed.tasks}
    for name in tasks or ():
        if name not in known:
            raise UnknownNameError(f"task {name!r} is unknown", where=str(run.folder), remedy=nearest(name, known))
    columns = [column.name for column in study.agreed.columns]
    raw = read_client_table(client, client_table(run, source), list(known.values()), columns)
    predictions = model.predictor(study.encoders[client].encode(raw.features, f"client {client!r}, {source}"))
    familiar = model.predictor(study.clients[client].train.x)

    made: dict[str, Any] = {}
    scores: dict[str, dict[str, float | None]] = {}
    wanted = tasks or list(known)
    for task in wanted:
        prediction = predictions[task]
        shown = prediction.columns()
        if "lower" in shown:
            shown["lower"], shown["upper"] = prediction.interval(level)
        shown["ood"] = _foreignness(prediction, familiar[task])
        made |= {f"{task}.{name}": values for name, values in shown.items()}
        labels = raw.labels.get(task)
        if labels is not None and len(labels.at):
            codec = study.clients[client].train.codecs[task]
            observed = codec.decode(codec.code(labels))
            scores[task] = {
                k: float(v) for k, v in score(known[task].kind, prediction.take(labels.at), observed).items()
            }
    return Predicted(pd.DataFrame(made), scores, {task: known[task].kind for task in wanted})


def _foreignness(prediction: Any, familiar: Any) -> np.ndarray:
    usual = np.median(_variance(familiar))
    # A method without a latent variance cannot tell.
    return _variance(prediction) / usual if usual > 0 else np.full(len(prediction), np.nan)


def _variance(prediction: Any) -> np.ndarray:
    """Of the latent function; of a task with several, their sum."""
    variance = prediction.latent_std**2
    return variance.sum(axis=1) if variance.ndim > 1 else variance
