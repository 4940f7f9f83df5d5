"""What to do when a node has ended: wait so and so long, or give up with a reason.

The server takes a node that was killed for alive until two of its heartbeats (30 s each) are missing, and rejects its key
until then. It rejects a key that it does not know in the same words, so the two are distinguished by whether the node was
alive a moment ago.

>>> RestartPolicy().after("Exit Code: 305 [SSL: CERTIFICATE_VERIFY_FAILED]", code=1, seconds=3)
Traceback (most recent call last):
polyfed.errors.PolyfedError: the server shows a certificate that ca.crt did not sign; copy ca/ca.crt of the server ...
"""

from __future__ import annotations

from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower.deploy.certificates import COPY_AUTHORITY, WRONG_AUTHORITY

FORGOTTEN = 65.0  # seconds after which the server has forgotten that a killed node was alive
SHORT = 10.0  # between two looks whether the key is registered by now: a new server does that after it has started
LOOKS = 3
FIRST, LONGEST = 5.0, 300.0  # of the waits after any other end; each is twice as long as the one before
STEADY = 60.0  # seconds after which a node counts as having run well


class RestartPolicy:
    """What to do when a node has ended: how long to wait, or why to give up. It counts how often it went wrong.

    The server takes a node that was killed for alive until two of its heartbeats (30 s each) are missing, and rejects its key
    until then. It rejects a key that it does not know in the same words, so the two are distinguished by whether the node was
    alive a moment ago: `alive` are the seconds since then, if it did not leave in order.
    """

    def __init__(self, alive: float | None = None) -> None:
        self.killed = alive is not None and alive < FORGOTTEN
        self.rejected = self.failed = 0

    def after(self, said: str, *, code: int, seconds: float) -> float:
        """Seconds to wait before the next start, or an error if that would not help."""
        if "CERTIFICATE_VERIFY_FAILED" in said:
            raise PolyfedError(WRONG_AUTHORITY, remedy=COPY_AUTHORITY)
        if "Exit Code: 302" in said:
            raise ConfigError("Flower does not take node.key", remedy="make another node with polyfed deploy add")
        if "Exit Code: 606" in said:
            raise ConfigError("the server has another version of Flower", remedy="install the same version on both")
        if "Exit Code: 305" in said and "code: 2004" in said:
            return self.after_rejection()
        return self.after_end(connected="SuperNode ID" in said, code=code, seconds=seconds)

    def after_end(self, *, connected: bool, code: int, seconds: float) -> float:
        """The same for an end that nobody has a word for."""
        self.rejected = 0
        self.failed = 1 if seconds > STEADY else self.failed + 1
        wait = min(FIRST * 2 ** (self.failed - 1), LONGEST)
        if connected and code != 0:  # it had no time to say goodbye
            self.killed = True
            return max(wait, FORGOTTEN)
        return wait

    def after_rejection(self) -> float:
        """The same for a key that the server does not take."""
        self.rejected += 1
        if self.killed:
            self.killed, self.rejected = False, 0
            return FORGOTTEN
        if self.rejected >= LOOKS:
            what = "the server rejects this node's key: it is not registered there, or another node with it is online"
            remedy = "start the server with polyfed deploy server, which registers all its nodes"
            raise PolyfedError(what, remedy=remedy)
        return SHORT
