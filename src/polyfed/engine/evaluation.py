"""How good the clients' models are: every client, every task, in the users' own units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyfed.data import ClientData
from polyfed.engine.members import Members
from polyfed.engine.rounds import Progress
from polyfed.methods import Method
from polyfed.methods.base import Predictor
from polyfed.metrics import score

PARTS = ("validation", "test")


def evaluate(method: Method, progress: Progress, members: Members) -> list[dict[str, Any]]:
    """An event for each part of the data and each model: the client's own, and the server's alone where that differs."""
    models = ["personal", "global"] if method.personalises else ["personal"]
    scores: dict[tuple[str, str], dict[str, Any]] = {(model, part): {} for model in models for part in PARTS}
    for client in members.names:
        for model in models:
            predict = members.predictor(method, progress, client, personal=model == "personal")
            parts = {part: members.part(client, part) for part in PARTS}
            for part, of_client in _scores(predict, parts).items():
                scores[model, part][client] = of_client
    return [
        {"event": "evaluation", "round": progress.round, "part": part, "model": model, "clients": of_clients}
        for (model, part), of_clients in scores.items()
        if of_clients
    ]


def _scores(predict: Predictor, parts: Mapping[str, ClientData]) -> dict[str, dict[str, dict[str, float]]]:
    """part → task → metric → value, for the parts that have labels."""
    labelled = {part: data for part, data in parts.items() if data.n_labels}
    found = {}
    for part, data in labelled.items():
        predictions = predict(data.x)
        found[part] = {
            task: score(data.codecs[task].task.kind, predictions[task].take(at), data.codecs[task].decode(y))
            for task, (at, y) in data.seen.items()
            if len(at)
        }
    return found
