"""`results.json`: what a finished run predicts, in plain numbers, so that a report needs neither torch nor the models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyfed.data import DEPLOYED, ClientData
from polyfed.engine.effects import MOST_INPUTS, effects
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
