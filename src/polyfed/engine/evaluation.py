"""How good the clients' models are: every client, every task, in the users' own units.

Of very many clients, a part is measured after rounds that are not the last one, and with the server's model alone: always the
same part, drawn by the run's seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polyfed.data import ClientData
from polyfed.engine.events import Event
from polyfed.engine.members import Members
from polyfed.engine.rounds import FederationState
from polyfed.kinds import LabelForm
from polyfed.methods.base import Question
from polyfed.metrics import Guess, score
from polyfed.seeds import Stream

PARTS = ("validation", "test")
MANY, MEASURED = 2000, 300  # clients beyond which a part is measured, and how many these are
AT_ONCE = 256  # models that are held at a time

Scores = dict[str, dict[str, float]]  # task → metric → value


def evaluate(federation_state: FederationState, members: Members, *, last: bool = True) -> list[Event]:
    """An event for each part of the data and each model: the client's own, and the server's alone where that differs."""
    events: list[Event] = []
    for model in ["personal", "global"] if members.method.personalises else ["personal"]:
        found: dict[str, dict[str, Scores]] = {part: {} for part in PARTS}
        names = members.names if last and model == "personal" else measured(members)
        n = AT_ONCE if len(members.own) > 1 else max(1, len(names))  # at a time; all, where one model serves them
        for i in range(0, len(names), n):
            for client, part, scores in _scores(federation_state, members, names[i : i + n], model == "personal"):
                found[part][client] = scores
        about = {"event": "evaluation", "round": federation_state.round}
        events += [{**about, "part": part, "model": model, "clients": of} for part, of in found.items() if of]
    return events


def guesses_of(train: ClientData) -> dict[str, Guess]:
    """The guess of each task from a client's training labels alone; left out where there is none."""
    nothing = np.zeros(0, dtype=np.intp), np.zeros(0)
    found = {}
    for task, codec in train.codecs.items():
        _, y = train.labels.get(task, nothing)
        if codec.classes is not None:
            y = np.maximum(y, 0)  # a binary label is coded as -1 or +1
            guess = Guess.of(codec.task.kind, y, n_classes=len(codec.classes))
        else:
            known = codec.task.form is LabelForm.NUMBER and (codec.shift, codec.scale) != (0.0, 1.0)
            guess = Guess.of(codec.task.kind, codec.decode(y), agreed=codec.shift if known else None)
        if guess is not None:
            found[task] = guess
    return found


def measured(members: Members) -> list[str]:
    """All clients, or the part of very many."""
    names = members.names
    if len(names) <= MANY:
        return names
    chosen = Stream(members.seed, "measured").numpy().choice(len(names), MEASURED, replace=False)
    return [names[i] for i in sorted(chosen)]


def _scores(
    federation_state: FederationState, members: Members, names: Sequence[str], personal: bool
) -> Iterator[tuple[str, str, Scores]]:
    """The scores of each client on each part that has labels."""
    asked: dict[str, list[tuple[str, str, ClientData]]] = {}  # whose model → who asks it about which of his rows
    for client in names:
        for part in PARTS:
            data = members.part(client, part)
            if data.n_labels:
                asked.setdefault(members.trainer[client], []).append((client, part, data))
    questions = []
    for trainer, parts in asked.items():
        x = np.concatenate([members.question(client, data.x) for client, _, data in parts])
        state = members.state(federation_state, parts[0][0], personal)
        questions.append(Question(state, members.own[trainer], x))
    answers = members.method.predict_many(federation_state.server, questions)
    for parts, predictions in zip(asked.values(), answers, strict=True):
        before = 0
        for client, part, data in parts:
            guesses, scores = guesses_of(members.part(client, "train")), Scores()
            for task, (at, y) in data.labels.items():
                if len(at):
                    codec, prediction = data.codecs[task], predictions[task].take(at + before)
                    scores[task] = score(codec.task.kind, prediction, codec.decode(y), guess=guesses.get(task))
            before += len(data.x)  # the rows of the next come after these
            yield client, part, scores
