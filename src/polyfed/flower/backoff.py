"""Whom not to ask: a client that did not answer costs the whole timeout, so it is skipped for 1, 2, 4, ... rounds.

>>> backoff = Backoff()
>>> backoff.failed("basel", 3)
>>> [backoff.allows("basel", round) for round in (4, 5)], backoff.allows("bern", 4)
([False, True], True)
"""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST = 16  # rounds


@dataclass
class Backoff:
    """Failures in a row of each client, and the round from which it is asked again."""

    failures: dict[str, int] = field(default_factory=dict)
    asked_from: dict[str, int] = field(default_factory=dict)

    def allows(self, client: str, round: int) -> bool:
        return round >= self.asked_from.get(client, 0)

    def failed(self, client: str, round: int) -> None:
        """It was asked in this round and did not answer."""
        self.failures[client] = self.failures.get(client, 0) + 1
        self.asked_from[client] = round + 1 + min(2 ** (self.failures[client] - 1), LONGEST)

    def succeeded(self, client: str) -> None:
        self.failures.pop(client, None)
        self.asked_from.pop(client, None)
