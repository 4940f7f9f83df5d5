"""How soon to ask again for what comes in its own time: a tenth of what one has waited already, or usually waits, so that an
answer is never known much later than it is there, and nobody who waits for hours, or among many, keeps a server busy.

>>> pause_after(0.0), pause_after(5.0), pause_after(3600.0), pause_after(0.0, usual=4.0)
(0.05, 0.5, 3.0, 0.4)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from flwr.app import Message
from flwr.serverapp import Grid

SHORTEST, LONGEST = 0.05, 3.0  # seconds; the second is Flower's own between any two questions


def pause_after(waited: float, usual: float = 0.0) -> float:
    """Seconds until the next question, after `waited` seconds without an answer that takes `usual` seconds as a rule."""
    return min(max(0.1 * waited, 0.1 * usual, SHORTEST), LONGEST)


def polling(grid: Grid) -> Grid:
    """The same Grid, whose replies are asked for soon while they are expected and seldom when they are late, from now on."""
    grid.send_and_receive = partial(_send_and_receive, grid)
    return grid


def _send_and_receive(grid: Grid, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
    """The replies that come within the time; a message that the server did not take has none."""
    messages = list(messages)
    waiting = {number for number in grid.push_messages(messages) if number} if messages else set[str]()
    replies, began = list[Message](), time.monotonic()
    while waiting:
        found = list(grid.pull_messages(waiting))
        replies += found
        waiting -= {reply.metadata.reply_to_message_id for reply in found}
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            break
        if waiting:
            pause = pause_after(waited)
            time.sleep(pause if timeout is None else min(pause, timeout - waited))
    return replies
