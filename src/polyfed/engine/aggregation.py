"""From the updates that passed the check to the server's next state; and, if that is none to go on from, who broke it.

What passes the check may still break the algebra of a method, or take a state beyond its limits. If such a round were only
dropped, one client could end all learning by doing so every time. So the clients are put in the order of the size of what they
sent, and the first of them is found by bisection whose update breaks what those before it make together: O(log n)
aggregations. It is rejected by name, and the others go on, if they are still a quorum.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from polyfed.engine.form import reason_of, shown
from polyfed.engine.pipeline import prepared
from polyfed.engine.robust import Updates
from polyfed.engine.settings import Settings
from polyfed.engine.validation import fault_of
from polyfed.methods import ClientUpdate, Method, State
from polyfed.seeds import Stream

MOST_CULPRITS = 20  # in one round; who looks for more gives the attackers the server's time


def aggregated(
    method: Method, server: State, updates: Updates, settings: Settings, n_asked: int, round: int = 0
) -> tuple[State, dict[str, str], str | None]:
    """The next state, client → reason for those who were left out for it, and why the state before stays, if it does."""

    def attempt(some: Updates) -> tuple[State, str | None]:
        """The state that these updates make, and what is wrong with it, if anything is."""
        try:
            with torch.no_grad():  # what clients send may still hang on the graph that made it
                stream = Stream(settings.seed, "aggregation", round)
                ready = prepared(method, server, some, settings.aggregation, settings.trim, stream)
                made = method.aggregate(server, ready)
        except (ArithmeticError, ValueError, RuntimeError) as error:  # algebra breaks at numbers that clients chose
            return server, reason_of(error)
        return made, fault_of(made, server)

    after, fault = attempt(updates)
    left, culprits, now = dict(updates), {}, fault
    while now is not None:
        culprit, why = _culprit(attempt, left, now)
        del left[culprit]
        culprits[culprit] = shown(f"with its update the round breaks: {why}")
        if len(culprits) > MOST_CULPRITS or not settings.is_enough(len(left), n_asked):
            return server, {}, fault  # it is not the doing of a few
        after, now = attempt(left)
    return after, culprits, None


def _culprit(attempt: Callable[[Updates], tuple[State, str | None]], updates: Updates, fault: str) -> tuple[str, str]:
    """A client whose update breaks what a set of others makes, and how; all together make this fault."""
    order = sorted(updates, key=lambda client: (_size(updates[client]), client))
    sound, broken, why = 0, len(order), fault  # numbers of clients, the first in the order; none of them breaks nothing
    while broken - sound > 1:
        middle = (sound + broken) // 2
        _, found = attempt({client: updates[client] for client in order[:middle]})
        sound, broken, why = (middle, broken, why) if found is None else (sound, middle, found)
    return order[broken - 1], why


def _size(update: ClientUpdate) -> float:
    """How much there is of it, in all arrays and sums."""
    values = [*update.arrays.values(), *(total for total, _ in update.pooled.values())]
    return float(sum(value.detach().to(torch.float64).square().sum() for value in values))
