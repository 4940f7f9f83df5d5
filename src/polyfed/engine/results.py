"""`results.json`: what a finished run predicts, in plain numbers, so that a report needs neither torch nor the models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyfed.data import DEPLOYED, ClientData
from polyfed.data.schema.negotiation import Column
from polyfed.engine.evaluation import PARTS
from polyfed.metrics import LEVEL
from polyfed.metrics.scores import observed
from polyfed.predictions import Prediction

if TYPE_CHECKING:
    from polyfed.engine.run import Run

MOST_CLIENTS = 200  # a report of more is read by nobody, and loaded by no browser
MOST_EFFECTS = 12  # clients whose partial dependence is worked out
GRID = 200


def results(run: Run) -> dict[str, object]:
    """Predictions beside the labels of the test rows, the latent functions where inputs are numbers, and Θ."""
    clients = run.members.names[:MOST_CLIENTS]
    part = next((p for p in reversed(PARTS) if any(run.members.part(c, p).n_labels for c in clients)), None)
    spec, columns = run.prepared.spec, run.prepared.agreed.columns
    return {
        "round": run.federation_state.round,
        "part": part,
        "tasks": {name: {"kind": c.task.kind, "classes": c.classes} for name, c in spec.codecs.items()},
        "predictions": {} if part is None else {c: _against_labels(run, c, run.members.part(c, part)) for c in clients},
        "data": {c: _amounts(run, c) for c in clients},
        "inputs": list(run.prepared.encoders[clients[0]].names) if clients and len(columns) <= MOST_INPUTS else None,
        "effects": {c: effects(run, c) for c in clients[:MOST_EFFECTS]}
        if spec.n_features > 1 and len(columns) <= MOST_INPUTS
        else None,
        "latents": {c: _latents(run, c) for c in clients} if spec.n_features == 1 else None,
        "model": run.method.explain(run.federation_state.server, spec.nothing()),
        "left_out": {
            "silent": run.silent,
            "rejected": dict(run.prepared.round0.rejected),
            "unknown": {client: dict(tasks) for client, tasks in run.prepared.round0.unknown.items()},
            "below": run.prepared.below(DEPLOYED),
        },
    }


def _amounts(run: Run, client: str) -> dict[str, object]:
    """Rows and labels of each part, and how many training labels each class has."""
    parts = {part: run.members.part(client, part) for part in ("train", *PARTS)}
    labels: dict[str, object] = {}
    for task, codec in parts["train"].codecs.items():
        _, y = parts["train"].labels.get(task, (None, np.zeros(0)))
        codes = np.maximum(y, 0).astype(np.intp)  # a binary label is coded as -1 or +1
        counts = None if codec.classes is None else np.bincount(codes, minlength=len(codec.classes)).tolist()
        labels[task] = {**{part: data.counts().get(task, 0) for part, data in parts.items()}, "classes": counts}
    return {"rows": {part: len(data.x) for part, data in parts.items()}, "labels": labels}


def _against_labels(run: Run, client: str, data: ClientData) -> dict[str, object]:
    if not data.n_labels:
        return {}
    predictions, found = run.members.predict(run.federation_state, client, data.x), {}
    for task, (at, coded) in data.labels.items():
        if not len(at):
            continue
        prediction: Any = predictions[task].take(at)
        y = data.codecs[task].decode(coded)
        if hasattr(prediction, "class_proba"):
            found[task] = {"y": prediction.positions(y).tolist(), "proba": prediction.class_proba.tolist()}
        else:
            lower, upper = prediction.interval(LEVEL)
            numbers = {"y": observed(y), "mean": prediction.mean, "std": prediction.std, "lower": lower, "upper": upper}
            found[task] = {name: np.asarray(values, dtype=float).tolist() for name, values in numbers.items()}
    return found


def _latents(run: Run, client: str) -> dict[str, object]:
    """Each task's latent function with its 95 % band, over the range of the client's inputs."""
    train, scaler = run.prepared.clients[client].train, run.prepared.encoders[client].scaler
    truth = (run.prepared.truth or {}).get(client)
    own = run.prepared.agreed.columns[0].undone(train.x[:, 0] * scaler.scale[0] + scaler.mean[0])
    grid = np.linspace(own.min(), own.max(), GRID) if truth is None else truth["x"][:, 0]
    predictions = run.client(client).predict(grid[:, None])
    shown = {}
    for task in predictions:
        prediction: Prediction = predictions[task]
        if prediction.latent_mean.ndim > 1:  # one function for each class: more than a picture holds
            continue
        mean, reach = prediction.latent_mean, 1.96 * prediction.latent_std
        at, y = train.labels.get(task, (np.zeros(0, dtype=int), np.zeros(0)))
        labels, classes = train.codecs[task].decode(y), train.codecs[task].classes
        if classes is not None:
            labels = np.array([classes.index(label) for label in labels.tolist()])
        shown[task] = {
            "x": grid.tolist(),
            "mean": mean.tolist(),
            "lower": (mean - reach).tolist(),
            "upper": (mean + reach).tolist(),
            "truth": truth[task].tolist() if truth is not None and task in truth else None,
            "seen": {"x": own[at].tolist(), "y": np.asarray(observed(labels), dtype=float).tolist()},
        }
    return shown


MOST_INPUTS = 30  # columns; of an image's features nobody looks at any single one
POINTS = 20  # of a grid
MOST_LEVELS = 20  # of a text; more are no curve
MOST_ROWS = 4000  # that are predicted for one client, so that a report costs less than a round


class Place(NamedTuple):
    """Where an input lies among the encoded features, and which number of the scaler it is, if it is one."""

    column: Column
    first: int
    number: int | None


def effects(run: Run, client: str) -> dict[str, list[dict[str, object]]]:
    """Partial dependence (Friedman 2001), task → for each input its values and the curves over them: what a client's model
    expects of a task as one input moves and the others stay.

    One input at a time takes each value of a grid in some of the client's own rows, and the predictions are averaged over these
    rows. The band is the average of the rows' bands: never too narrow, for what rows are unsure of may cancel in an average.
    """
    x, scaler = run.prepared.clients[client].train.x, run.prepared.encoders[client].scaler
    # A number that is the same in all of a client's rows has no curve.
    places = [p for p in _places(run.prepared.agreed.columns) if p.number is None or np.ptp(x[:, p.first]) > 0]
    if not places:
        return {}
    n_rows = max(3, min(40, MOST_ROWS // (POINTS * len(places))))
    rows = x[np.unique(np.linspace(0, len(x) - 1, n_rows).astype(int))]
    moved, values = [], []
    for place in places:
        if place.number is None:
            shown: list[object] = list(place.column.categories)
            codes = np.eye(len(shown))
        else:
            low, high = np.quantile(x[:, place.first], [0.025, 0.975]).tolist()
            if low == high:  # nearly all rows have one value
                low, high = float(x[:, place.first].min()), float(x[:, place.first].max())
            codes = np.linspace(low, high, POINTS)[:, None]
            shown = place.column.undone(scaler.mean[place.number] + scaler.scale[place.number] * codes[:, 0]).tolist()
        values.append(shown)
        moved.append(_moved(rows, place, codes))
    sizes = [len(one) for one in moved]
    predictions = run.members.predictor(run.federation_state, client)(np.concatenate(moved))
    found: dict[str, list[dict[str, object]]] = {}
    for task in predictions:
        ends = np.cumsum(sizes)[:-1]
        parts = [None if part is None else np.split(part, ends) for part in predictions[task].band()]
        found[task] = [
            {"input": place.column.name, "x": shown, "curves": _curves(parts, i, len(rows))}
            for i, (place, shown) in enumerate(zip(places, values, strict=True))
        ]
    return found


def _curves(parts: list[Any], i: int, n_rows: int) -> list[dict[str, object]]:
    """Of input i: the averages over the rows at each value, for each curve."""
    averages = [None if part is None else part[i].reshape(-1, n_rows, part[i].shape[1]).mean(axis=1) for part in parts]
    named = dict(zip(("mean", "lower", "upper"), averages, strict=True))
    n_curves = parts[0][i].shape[1]
    return [{name: None if of is None else of[:, k].tolist() for name, of in named.items()} for k in range(n_curves)]


def _moved(rows: np.ndarray, place: Place, codes: np.ndarray) -> np.ndarray:
    """Every row with every value of the input, value by value."""
    made = np.repeat(rows[None], len(codes), axis=0)
    width = codes.shape[1]
    made[:, :, place.first : place.first + width] = codes[:, None, :]
    if place.column.gaps:
        made[:, :, place.first + width] = 0.0  # the value is there
    return made.reshape(-1, rows.shape[1])


def _places(columns: tuple[Column, ...]) -> Iterator[Place]:
    first = number = 0
    for column in columns:
        is_number = column.kind == "number"
        if is_number or 1 < len(column.categories) <= MOST_LEVELS:
            yield Place(column, first, number if is_number else None)
        number += is_number
        first += len(column.encoded_names())
