"""How good the clients' models are: every client, every task, in the users' own units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.data import ClientData
from polyfed.engine.members import Members
from polyfed.engine.rounds import Progress
from polyfed.methods import Method
from polyfed.methods.base import Predictor
from polyfed.metrics import Guess, score

PARTS = ("validation", "test")


def evaluate(method: Method, progress: Progress, members: Members) -> list[dict[str, Any]]:
    """An event for each part of the data and each model: the client's own, and the server's alone where that differs."""
    models = ["personal", "global"] if method.personalises else ["personal"]
    scores: dict[tuple[str, str], dict[str, Any]] = {(model, part): {} for model in models for part in PARTS}
    for client in members.names:
        guesses = guesses_of(members.part(client, "train"))
        for model in models:
            predict = members.predictor(method, progress, client, personal=model == "personal")
            parts = {part: members.part(client, part) for part in PARTS}
            for part, of_client in _scores(predict, parts, guesses).items():
                scores[model, part][client] = of_client
    return [
        {"event": "evaluation", "round": progress.round, "part": part, "model": model, "clients": of_clients}
        for (model, part), of_clients in scores.items()
        if of_clients
    ]


def guesses_of(train: ClientData) -> dict[str, Guess]:
    """What a client would guess of each task from its training labels alone; left out where they say nothing."""
    nothing = np.zeros(0, dtype=np.intp), np.zeros(0)
    found = {}
    for task, codec in train.codecs.items():
        _, y = train.seen.get(task, nothing)
        if codec.classes is not None:
            y = np.maximum(y, 0)  # a binary label is coded as -1 or +1
            guess = Guess.of(codec.task.kind, y, n_classes=len(codec.classes))
        else:
            known = codec.task.kind in ("regression", "robust") and (codec.shift, codec.scale) != (0.0, 1.0)
            guess = Guess.of(codec.task.kind, codec.decode(y), agreed=codec.shift if known else None)
        if guess is not None:
            found[task] = guess
    return found


def _scores(
    predict: Predictor, parts: Mapping[str, ClientData], guesses: Mapping[str, Guess]
) -> dict[str, dict[str, dict[str, float]]]:
    """part → task → metric → value, for the parts that have labels."""
    labelled = {part: data for part, data in parts.items() if data.n_labels}
    found = {}
    for part, data in labelled.items():
        predictions = predict(data.x)
        found[part] = {
            task: score(
                data.codecs[task].task.kind,
                predictions[task].take(at),
                data.codecs[task].decode(y),
                guess=guesses.get(task),
            )
            for task, (at, y) in data.seen.items()
            if len(at)
        }
    return found
