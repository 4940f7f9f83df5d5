"""How soon to ask again for what comes in its own time: a tenth of what one has waited already, or usually waits, so that an
answer is never known much later than it is there, and nobody who waits for hours, or among many, keeps a server busy.

>>> pause_after(0.0), pause_after(5.0), pause_after(3600.0), pause_after(0.0, usual=4.0)
(0.05, 0.5, 3.0, 0.4)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

SHORTEST, LONGEST = 0.05, 3.0  # seconds; the second is Flower's own between any two questions


def pause_after(waited: float, usual: float = 0.0) -> float:
    """Seconds until the next question, after so many without an answer, where one `usual`ly takes so many."""
    return min(max(0.1 * waited, 0.1 * usual, SHORTEST), LONGEST)


class PollingGrid(Grid):
    """Another Grid, whose replies are asked for soon while they are expected and seldom when they are late."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The replies that come within the time; a message that the server did not take has none."""
        messages = list(messages)
        waiting = {number for number in self.push_messages(messages) if number} if messages else set[str]()
        replies, began = list[Message](), time.monotonic()
        while waiting:
            found = list(self.pull_messages(waiting))
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                break
            if waiting:
                pause = pause_after(waited)
                time.sleep(pause if timeout is None else min(pause, timeout - waited))
        return replies
