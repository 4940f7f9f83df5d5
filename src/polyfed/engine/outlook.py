"""Before a run or a round that will take long, how long, and what would make it shorter: counted for the first round, and as
long as the last one took from then on.

What is reported goes to those who listen (`on_event`) and is not stored: it is of this machine and of this hour.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from polyfed.data import ClientData
from polyfed.engine.events import Event
from polyfed.engine.members import Members
from polyfed.engine.rounds import FederationState
from polyfed.engine.settings import Settings
from polyfed.methods import Method
from polyfed.methods.base import Outlook
from polyfed.modelling.memory import MOST_ROWS, memory, speed, too_long

LONG, WHOLE = 30.0, 60.0  # seconds of a round, and of a run
NAMED = 3
FEW, FEWER = 50, 32  # clients in a round that are no longer few; inducing inputs that take less time


class Forecast:
    """How long rounds take, and the models that are measured after some of them."""

    def __init__(self, ahead: Outlook, models: int, shorter: str = "") -> None:
        self._shorter, self._reported = shorter, False
        operations = ahead.operations + models * ahead.measuring
        per_operation = 1 / speed() if operations > 1e9 else 0.0
        self._round, self._evaluation = ahead.operations * per_operation, models * ahead.measuring * per_operation

    def event(self, round: int, settings: Settings) -> Event | None:
        """The event to report before this round; None if it is soon over."""
        evaluation, left = self._evaluation if settings.evaluates(round) else 0.0, range(round, settings.rounds + 1)
        whole = len(left) * self._round + sum(map(settings.evaluates, left)) * self._evaluation
        # Of the whole run: once, as it begins or goes on.
        is_news, self._reported = not self._reported and whole >= WHOLE, True
        if self._round + evaluation < LONG and not is_news:
            return None
        reported = {"event": "outlook", "round": round, "rounds": settings.rounds}
        reported |= {"seconds": self._round, "evaluation_seconds": evaluation, "shorter": self._shorter}
        return reported | {"run_seconds": whole} if is_news else reported

    def learn(self, round: float, evaluation: float | None) -> None:
        """What a round took, and measuring its models if that was done; if not, it is off by as much as the round was."""
        if evaluation is None:
            evaluation = self._evaluation * (round / self._round if self._round > 0 else 1.0)
        self._round, self._evaluation = round, evaluation


def forecast(method: Method, federation_state: FederationState, members: Members, settings: Settings) -> Forecast:
    """The forecast of a run that begins or goes on; says which clients are too large for exact models."""
    able = {client: mine for client, mine in members.training.items() if mine.n_labels}
    ahead = {client: _outlook(method, federation_state, client, mine) for client, mine in able.items()}
    report_sparse(ahead, able)
    sampled = settings.participants(list(able), federation_state.round + 1)
    models = 2 if method.personalises else 1
    mine = [ahead[client] for client in sampled]
    whole = Outlook(sum(one.operations for one in mine), sum(one.measuring for one in ahead.values()))
    return Forecast(whole, models, shorter=_shorter(method, mine))


def _shorter(method: Method, ahead: Sequence[Outlook]) -> str:
    operations, exact = sum(one.operations for one in ahead), sum(one.exact for one in ahead)
    if hasattr(method, "inducing") and exact > 0.5 * operations:
        return "method.inducing=auto"
    if len(ahead) > FEW:
        return f"run.sample={max(FEW, len(ahead) // 10)}"
    return f"method.inducing={FEWER}" if any(one.inducing for one in ahead) else "run.sample=0.5"


def report_sparse(ahead: Mapping[str, Outlook], data: Mapping[str, ClientData]) -> None:
    """A warning about clients whose exact posterior does not fit into memory, or would take long."""
    ahead = {client: one for client, one in ahead.items() if one.inducing is not None}
    if not ahead:
        return
    names = [repr(name) for name in ahead]
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    most = max(data[client].n_labels for client in ahead)
    points = max(one.inducing or 0 for one in ahead.values())
    fits = all(one.fits for one in ahead.values())
    reason = too_long(MOST_ROWS) if fits else f"does not fit into memory ({memory() / 1e9:.1f} GB)"
    warnings.warn(
        f"client{'s' if len(names) > 1 else ''} {shown} with up to {most:,} labels: the exact posterior {reason}, "
        f"so inducing='auto' is used, with up to {points} inducing inputs at first; see docs/sparse.md",
        stacklevel=4,
    )


def _outlook(method: Method, federation_state: FederationState, client: str, data: ClientData) -> Outlook:
    try:
        return method.outlook(federation_state.server, federation_state.clients.get(client), data)
    except Exception:  # what breaks there breaks in the round too, where it is rejected by name
        return Outlook()
