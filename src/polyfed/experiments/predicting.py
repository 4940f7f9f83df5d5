"""New rows of clients, from a file to a table of predictions, scores where there are labels, and a warning sign.

The warning sign `<task>.ood` is the variance of the latent function at a row, in units of its median at the rows that the
client learned from: about 1 where the row is like them, large where the model knows nothing.

Rows that a model has been trained on already are marked: what it says of them is no measure of what it will say of others.
A row is known if its features, and every label it brings, are those of a training row. Each training row answers for one
row, so that many people of the same age and sex are not taken for the one who was trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data import ClientData
from polyfed.data.schema.coding import code_rows
from polyfed.data.tables.client_column import client_names
from polyfed.data.tables.columns import written_columns
from polyfed.data.tables.derived import comparisons, with_derived
from polyfed.data.tables.files import Table, load_table
from polyfed.data.tables.reading import read_client_table
from polyfed.errors import DataError, UnknownNameError, UsageError, nearest
from polyfed.experiments.running import read_config
from polyfed.gp.compiled import by_torch
from polyfed.metrics import score

if TYPE_CHECKING:
    import pandas as pd

    from polyfed.data import PreparedFederation
    from polyfed.data.raw import RawClient
    from polyfed.engine import Run
    from polyfed.experiments.config import DataConfig
    from polyfed.predictions import Prediction

FAR = 10.0  # times the usual variance of the latent function, from which a row is marked as far from training
BEYOND = 3.0  # ranges of an input beyond its training rows, from which a row is too, whatever the method says of it
FEW, SMALL = 10, 500  # clients, and labels of each: their models take torch less than half a second
NOTES = "notes"
Scores = dict[str, dict[str, float | None]]  # task → metric → value


@dataclass(eq=False)
class Predicted:
    """What the clients' models say of the rows of a file."""

    kinds: dict[str, str]  # task → kind
    clients: dict[str, int]  # client → how many rows it was asked for
    table: pd.DataFrame = field(init=False)  # a row for each row given: columns that are kept first, and notes last
    kept: list[str] = field(init=False)  # the columns that are kept as they were
    scores: dict[str, Scores] = field(default_factory=dict)  # client → scores of rows that were not trained on
    training_scores: dict[str, Scores] = field(default_factory=dict)  # the same of those that it was
    trained_on: int = 0  # how many rows the models were trained on
    far: int = 0  # how many are far from all that the models were trained on
    unseen: dict[str, Counter[str]] = field(default_factory=dict)  # text column → new category → rows with it


def client_table(run: Run, source: Path) -> Table:
    """A file of new rows, with the columns that the settings of the run derive."""
    data = _data_of(run)
    client, texts, derive = (None, None, {}) if data is None else (data.client, data.missing, data.derive)
    written, missing = written_columns(run.prepared.agreed.tasks, client), None if texts is None else tuple(texts)
    table = load_table(source, written=written, missing=missing)
    absent = [comparison for comparison in comparisons(derive) if comparison.name not in table.frame.columns]
    return with_derived(table, absent, partly=True)


def unseen_in(run: Run, client: str, table: Table) -> dict[str, dict[str, int]]:
    """Text column → category of a joined client's table that training did not know → rows with it."""
    unseen = _study_of(run, client).encoders[client].unseen
    return unseen(_raw(run, client, table).features, f"client {client!r}")


def held_out_scores(run: Run, client: str) -> Scores:
    """Scores of a joined client's model on the rows that it kept for testing."""
    prepared = _study_of(run, client)
    test = prepared.clients[client].test
    if not test.n_labels:
        return {}
    predictions = run.client(client).predictor(test.x)
    kinds = {task.name: task.kind for task in prepared.agreed.tasks}
    return {
        task: _measured(kinds[task], predictions[task].take(at), test.codecs[task].decode(y))
        for task, (at, y) in test.labels.items()
    }


def mean_scores(scores: Mapping[str, Scores]) -> Scores:
    """The mean over the clients of each score that they have."""
    found: Scores = {}
    everyone = list(scores.values())
    pairs = ((task, metric) for own in everyone for task, metrics in own.items() for metric in metrics)
    for task, metric in dict.fromkeys(pairs):
        values = [own.get(task, {}).get(metric) for own in everyone]
        known = [value for value in values if value is not None and np.isfinite(value)]
        found.setdefault(task, {})[metric] = float(np.mean(known)) if known else None
    return found


def predict_table(
    run: Run,
    source: Path,
    client: str | None = None,
    *,
    tasks: list[str] | None = None,
    level: float = 0.95,
    keep: Sequence[str] = (),
) -> Predicted:
    """Predictions for the rows of a file, of one client's model or, by the column of the clients, of each row's own."""
    import pandas as pd

    known = {task.name: task for task in run.prepared.agreed.tasks}
    for name in tasks or ():
        if name not in known:
            raise UnknownNameError(f"task {name!r} is unknown", where=str(run.folder), remedy=nearest(name, known))
    table = client_table(run, source)
    for name in keep:
        table.column(name)
    rows_of, column = _rows_by_client(run, table, client)
    kinds = {task: known[task].kind for task in tasks or known}
    found = Predicted(kinds, {name: len(rows) for name, rows in rows_of.items()})
    held = [_study_of(run, name).clients.get(name) for name in rows_of]
    # The models of few and small clients are found sooner than compiled code is loaded.
    few = len(held) <= FEW and all(own is None or own.train.n_labels <= SMALL for own in held)
    with by_torch() if few else nullcontext():
        parts = [_of_client(run, name, table, rows, level, found) for name, rows in rows_of.items()]
    order = np.argsort(np.concatenate(list(rows_of.values())), kind="stable")
    made = pd.concat(parts, ignore_index=True).iloc[order].reset_index(drop=True)
    kept = list(dict.fromkeys(keep if column is None else [column, *keep]))
    if clash := [name for name in kept if name in made.columns]:
        remedy = "leave it out, or rename it"
        raise UsageError(f"column {clash[0]!r} would be there twice", where="--keep", remedy=remedy)
    found.table = pd.concat([table.frame[kept].reset_index(drop=True), made], axis=1)
    found.kept = [str(name) for name in kept]
    found.unseen = {name: Counter(dict(strange.most_common())) for name, strange in found.unseen.items()}
    return found


def _data_of(run: Run) -> DataConfig | None:
    if run.folder is None or not (run.folder / "config.toml").is_file():
        return None
    return read_config(run.folder).data


def _study_of(run: Run, client: str) -> PreparedFederation:
    return run.late_clients if run.late_clients is not None and client in run.late_states else run.prepared


def _rows_by_client(run: Run, table: Table, client: str | None) -> tuple[dict[str, np.ndarray], str | None]:
    """client → the positions of its rows, and the column that says so."""
    everything = np.arange(len(table.frame))
    if client is not None:
        return {client: everything}, None
    data = _data_of(run)
    column = None if data is None else data.client
    if not run.clients:
        what = "the data of the clients are on their own machines"
        remedy = "predict there, with the run in a node's state folder"
        raise UsageError(what, where=str(run.folder or "this run"), remedy=remedy)
    if column is None or column not in table.frame.columns:
        if len(run.clients) == 1:
            return {run.clients[0]: everything}, None
        known = ", ".join(run.clients[:10]) + (", ..." if len(run.clients) > 10 else "")
        reported = "" if column is None else f", and {table.where} has no column {column!r}"
        raise UsageError(
            f"it is not said whose model is to predict{reported}", remedy=f"give --client with one of {known}"
        )
    names = client_names(table, column)
    members = {*run.clients, *run.prepared.spec.clients}
    unknown = np.array([name not in members for name in names.tolist()], dtype=bool)
    if unknown.any():
        row, n = int(unknown.argmax()), int(unknown.sum())
        what = f"client {str(names[row])!r} is unknown" + (f", as are those of {n - 1} further rows" if n > 1 else "")
        remedy = "let it join first (polyfed join), drop its rows, or say with --client whose model predicts all rows"
        raise DataError(what, where=table.row_name(row), remedy=remedy)
    return {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}, column


def _raw(run: Run, client: str, table: Table) -> RawClient:
    """The client's rows with the columns that training knows."""
    agreed = _study_of(run, client).agreed
    return read_client_table(client, table, agreed.tasks, [column.name for column in agreed.columns])


def _of_client(run: Run, client: str, table: Table, rows: np.ndarray, level: float, found: Predicted) -> pd.DataFrame:
    """The predictions for a client's rows; what else there is to say of them is added to what was found."""
    import pandas as pd

    model, prepared = run.client(client), _study_of(run, client)
    mine = replace(table, frame=table.frame.iloc[rows], row_name=lambda row: table.row_name(int(rows[row])))
    raw = _raw(run, client, mine)
    own, encoder, where = prepared.clients[client].train, prepared.encoders[client], f"client {client!r}, {table.where}"
    unseen, is_unseen = encoder.unseen(raw.features, where), encoder.unseen_rows(raw.features, where)
    coded = replace(code_rows(client, raw, encoder, own.codecs), x=encoder.encode(raw.features, where))
    predictions, familiar = model.predictor(coded.x), model.predictor(own.x)
    everyone = [parts.train for parts in run.prepared.clients.values()] if run.method.pools_data else []
    is_known = trained_on(coded, [*everyone, own])

    made: dict[str, object] = {}
    far = outside(coded.x, own.x)
    for task, kind in found.kinds.items():
        prediction = predictions[task]
        shown = prediction.columns()
        if "lower" in shown:
            shown["lower"], shown["upper"] = prediction.interval(level)
        usual = np.median(_variance(familiar[task]))  # not above 0 for a method without a latent variance
        shown["ood"] = _variance(prediction) / usual if usual > 0 else np.full(len(prediction), np.nan)
        far |= shown["ood"] >= FAR  # not where it is not known
        made |= {f"{task}.{name}": values for name, values in shown.items()}
        at, y = coded.labels.get(task, (np.zeros(0, dtype=int), np.zeros(0)))
        for scores, chosen in ((found.scores, ~is_known[at]), (found.training_scores, is_known[at])):
            if chosen.any():
                truth = own.codecs[task].decode(y[chosen])
                scores.setdefault(client, {})[task] = _measured(kind, prediction.take(at[chosen]), truth)
    marks = {"trained on": is_known, "unseen category": is_unseen, "far from training": far}
    made[NOTES] = ["; ".join(mark for mark, marked in marks.items() if marked[row]) for row in range(len(rows))]
    found.trained_on += int(is_known.sum())
    found.far += int(far.sum())
    for name, strange in unseen.items():
        found.unseen.setdefault(name, Counter()).update(strange)
    return pd.DataFrame(made)


def outside(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether a row has an input far beyond those of the training rows: where a model goes flat, its variance says nothing.

    >>> outside(np.array([[2.0], [90.0]]), np.array([[0.0], [1.0]]))
    array([False,  True])
    """
    if not len(known):
        return np.zeros(len(x), dtype=bool)
    low, high = known.min(0), known.max(0)
    off = np.maximum(low - x, x - high) / np.maximum(high - low, 1.0)  # inputs have spread one, as a rule
    return (off > BEYOND).any(1)


def _measured(kind: str, prediction: Prediction, truth: np.ndarray) -> dict[str, float | None]:
    return {metric: float(value) for metric, value in score(kind, prediction, truth).items()}


def _variance(prediction: Prediction) -> np.ndarray:
    """Of the latent function; of a task with several, their sum."""
    variance = prediction.latent_std**2
    return variance.sum(axis=1) if variance.ndim > 1 else variance


def trained_on(rows: ClientData, known: Iterable[ClientData]) -> np.ndarray:
    """Whether each of these coded rows is one of the training rows."""
    keys = [_key(x) for x in rows.x]
    wanted, labels = set(keys), _labels_by_row(rows)
    left: dict[bytes, list[dict[str, tuple[float, ...]]]] = {}
    for data in known:
        theirs = _labels_by_row(data)
        for row, x in enumerate(data.x):
            if theirs[row] and (key := _key(x)) in wanted:  # nothing is learned from a row without labels
                left.setdefault(key, []).append(theirs[row])
    found = np.zeros(len(keys), dtype=bool)
    for row, key in enumerate(keys):
        same = next((one for one in left.get(key, ()) if labels[row].items() <= one.items()), None)
        if same is not None:
            left[key].remove(same)
            found[row] = True
    return found


def _key(x: np.ndarray) -> bytes:
    return (x + 0.0).tobytes()  # minus zero is zero


def _labels_by_row(data: ClientData) -> list[dict[str, tuple[float, ...]]]:
    labels: list[dict[str, tuple[float, ...]]] = [{} for _ in range(len(data.x))]
    for task, (at, y) in data.labels.items():
        for row, value in zip(at.tolist(), np.atleast_2d(y.T).T.tolist(), strict=True):
            labels[row][task] = tuple(value)
    return labels
