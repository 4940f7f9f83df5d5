"""When a run has learned enough: `stop = "validation"` ends it before its last round if more rounds no longer help.

The loss on the clients' validation rows decides, as in `summary(at="best")`: the run ends if the least one was `patience`
evaluations ago. Where no client has validation rows, the clients' bounds decide, which come with their updates anyway: the run
ends when their mean has risen by less than a tenth of a nat over `patience` evaluations. Where clients share functions
(pfed-hier), that is a bound on how well the others predict a client's labels; elsewhere it tells that learning has settled,
and nothing of over-fitting. The events alone decide, so a run that is resumed ends where it would have ended.

The models of a run that ended so are those of its last round; `Run.stopped` names the best one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyfed.engine.events import Event
from polyfed.engine.settings import Settings
from polyfed.engine.tables import bounds_of, history, losses_of_tasks
from polyfed.methods.messages import PREPARING

WORTH = 0.1  # nats of a client's bound for which more rounds are worth while


def best_round(events: Sequence[Event], kinds: Mapping[str, str], settings: Settings) -> int | None:
    """The best round of a run that is to end where it is, before its last round; None if it is to go on.

    The loss on the clients' validation rows decides, as in `summary(at="best")`: the run ends if the least one was `patience`
    evaluations ago. Where no client has validation rows, the clients' bounds decide, which come with their updates anyway: the
    run ends when their mean has risen by less than a tenth of a nat over `patience` evaluations. Where clients share functions
    (pfed-hier), that is a bound on how well the others predict a client's labels; elsewhere it shows that learning has settled,
    and nothing of over-fitting. As the events alone decide, a run that is resumed ends where it would have ended.
    """
    if settings.stop == "none":
        return None
    table: Any = history(events)
    losses, worth = losses_of_tasks(table[table["model"] == "personal"], kinds), 0.0
    if not losses:
        losses, worth = _bound_losses(events, settings), WORTH
    # Rounds in which a method only prepares do not count, nor those before.
    rounds = [event for event in events if event["event"] == "round"]
    preparing = [event["round"] for event in rounds if any(PREPARING in m for m in event["metrics"].values())]
    losses = {round: loss for round, loss in losses.items() if round > max(preparing, default=0)}
    if len(losses) <= settings.patience:
        return None
    before, since = list(losses)[: -settings.patience], list(losses)[-settings.patience :]
    best = min(before, key=lambda round: losses[round])
    return best if min(losses[round] for round in since) >= losses[best] - worth else None


def _bound_losses(events: Sequence[Event], settings: Settings) -> dict[int, float]:
    """Evaluated round → minus the mean bound of the clients that were asked since the evaluation before."""
    losses: dict[int, float] = {}
    since: list[float] = []
    for event in events:
        if event["event"] != "round" or not event["used"]:
            continue
        since += bounds_of(event)
        if settings.evaluates(event["round"]) and since:
            losses[event["round"]] = -sum(since) / len(since)
            since = []
    return losses
