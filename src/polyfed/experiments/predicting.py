"""New rows of a client, from a file to a table of predictions, scores where there are labels, and a warning sign.

The warning sign `<task>.ood` is the variance of the latent function at a row, in units of its median at the rows that the
client learned from: about 1 where the row is like them, large where the model knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data.coding import code_rows
from polyfed.data.derived import comparisons, with_derived
from polyfed.data.table_columns import written_columns
from polyfed.data.table_files import Table, load_table
from polyfed.data.tables import read_client_table
from polyfed.errors import UnknownNameError, nearest
from polyfed.experiments.familiar import trained_on
from polyfed.experiments.running import read_config
from polyfed.metrics import score

if TYPE_CHECKING:
    import pandas as pd

    from polyfed.engine import Run


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a client's model says of the rows of a file.

    Attributes:
        table: one row for each row given.
        scores: task → metric → value, from the labels of rows that the model was not trained on.
        training_scores: the same from those that it was.
        kinds: task → kind.
        trained_on: for each row, whether the model was trained on it.
        unseen: text column → category that training did not know → rows with it.
    """

    table: pd.DataFrame
    scores: dict[str, dict[str, float | None]]
    training_scores: dict[str, dict[str, float | None]]
    kinds: dict[str, str]
    trained_on: np.ndarray
    unseen: dict[str, dict[str, int]]


def client_table(run: Run, source: Path) -> Table:
    """A file of one client, with the columns that the settings of the run derive."""
    data = None
    if run.folder is not None and (run.folder / "config.toml").is_file():
        data = read_config(run.folder).data
    missing = None if data is None or data.missing is None else tuple(data.missing)
    table = load_table(source, written=written_columns(run.study.agreed.tasks), missing=missing)
    if data is not None:
        derived = comparisons(data.derive)
        absent = [comparison for comparison in derived if comparison.name not in table.frame.columns]
        table = with_derived(table, absent, partly=True)
    return table


def unseen_in(run: Run, client: str, table: Table) -> dict[str, dict[str, int]]:
    """Text column → category of a joined client's table that training did not know → rows with it."""
    study = run.study if run.guests is None or client not in run.guest_states else run.guests
    columns = [column.name for column in study.agreed.columns]
    raw = read_client_table(client, table, study.agreed.tasks, columns)
    return study.encoders[client].unseen(raw.features, f"client {client!r}")


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
    own, encoder, where = study.clients[client].train, study.encoders[client], f"client {client!r}, {source}"
    unseen = encoder.unseen(raw.features, where)
    coded = replace(code_rows(client, raw, encoder, own.codecs), x=encoder.encode(raw.features, where))
    predictions, familiar = model.predictor(coded.x), model.predictor(own.x)
    everyone = [parts.train for parts in run.study.clients.values()] if run.method.pools_data else []
    is_known = trained_on(coded, [*everyone, own])

    made: dict[str, Any] = {}
    scores: dict[bool, dict[str, dict[str, float | None]]] = {False: {}, True: {}}
    wanted = tasks or list(known)
    for task in wanted:
        prediction = predictions[task]
        shown = prediction.columns()
        if "lower" in shown:
            shown["lower"], shown["upper"] = prediction.interval(level)
        shown["ood"] = _foreignness(prediction, familiar[task])
        made |= {f"{task}.{name}": values for name, values in shown.items()}
        at, y = coded.seen.get(task, (np.zeros(0, dtype=int), np.zeros(0)))
        for of_known in scores if len(at) else ():
            mine = is_known[at] == of_known
            if mine.any():
                measured = score(known[task].kind, prediction.take(at[mine]), own.codecs[task].decode(y[mine]))
                scores[of_known][task] = {metric: float(value) for metric, value in measured.items()}
    kinds = {task: known[task].kind for task in wanted}
    return Predicted(pd.DataFrame(made), scores[False], scores[True], kinds, is_known, unseen)


def _foreignness(prediction: Any, familiar: Any) -> np.ndarray:
    usual = np.median(_variance(familiar))
    # A method without a latent variance cannot tell.
    return _variance(prediction) / usual if usual > 0 else np.full(len(prediction), np.nan)


def _variance(prediction: Any) -> np.ndarray:
    """Of the latent function; of a task with several, their sum."""
    variance = prediction.latent_std**2
    return variance.sum(axis=1) if variance.ndim > 1 else variance
