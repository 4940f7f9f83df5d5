"""A node that stays warm: it speaks with a standard SuperLink over TLS, signed with its key, and hands each message to a
worker process that has polyfed's client app loaded. No app that a server has is fetched, let alone run.

The worker is ended when a message's time is over, and the node lives on. What the node was asked before it was killed is
lost for that round: a server hands out a message once.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower import internals
from polyfed.flower.deploy.certificates import COPY_AUTHORITY, WRONG_AUTHORITY
from polyfed.flower.deploy.commands import Note
from polyfed.flower.deploy.processes import Signals
from polyfed.flower.internals import FleetRequests, PulledMessage, StatusError, TransportError
from polyfed.flower.polls import LONGEST, pause_after
from polyfed.flower.worker import Worker, WorkLost

TRIES, PAUSE = 6, 0.2  # of one request when the network fails; each pause is twice the one before
BEATS = 0.4 * internals.BEAT  # seconds between two signs of life, so that two may be lost on the way
UNAUTHORIZED = 401
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Rejected(Exception):
    """The server does not accept this node: its key is not registered, or the node is online already."""


class Forgotten(Exception):
    """The server accepted this node and does not know it any more."""


class WarmNode:
    """One node while it is online. `alive` is a file with its number, which goes when it leaves in order."""

    def __init__(self, requests: FleetRequests, alive: Path, leaving: Signals, note: Note) -> None:
        self.requests, self.alive, self.note = requests, alive, note
        self.leaving = leaving
        self.node = 0
        self._away = False
        self._forgotten = threading.Event()
        self._ended = threading.Event()

    def run(self, worker_of: Callable[[int], Worker]) -> None:
        """Come online and answer messages until the node is to end; an error if the server does not accept it."""
        if not self._activate():
            return
        self.note(f"Online as node {self.node}")
        worker, beating = worker_of(self.node), threading.Thread(target=self._beat, daemon=True)
        beating.start()
        try:
            self._answer(worker)
        finally:
            self._ended.set()
            worker.close()
            with suppress(TransportError, StatusError):
                self.requests.deactivate(self.node)
                self.alive.unlink(missing_ok=True)
            beating.join()

    # ---- coming online ------------------------------------------------------------------------------------------

    def _activate(self) -> bool:
        """Wait for the server as long as it takes; False if the node is to end before."""
        self._take_leave_of_the_killed()
        began = time.monotonic()
        while not self.leaving.sleep(0.0):
            try:
                self.node = self.requests.activate()
                self.alive.write_text(str(self.node))
                return True
            except (TransportError, StatusError) as error:
                _reject(error)
                self._say_away(error)
            self.leaving.sleep(pause_after(time.monotonic() - began))
        return False

    def _take_leave_of_the_killed(self) -> None:
        """Say goodbye for a node that was killed: the server would reject its key for a while and wait for its answer."""
        try:
            self.requests.deactivate(int(self.alive.read_text()))
        except (OSError, ValueError, TransportError, StatusError):
            return
        self.note("The node was killed before: the server knows now")
        self.leaving.sleep(LONGEST + 1.0)  # until a server that waits has noticed

    # ---- being online -------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._ended.wait(BEATS):
            try:
                known = self.requests.heartbeat(self.node)
            except TransportError:
                continue
            except StatusError as error:
                if internals.code_of(error) != UNAUTHORIZED:
                    continue
                known = False
            if not known:
                self._forgotten.set()
                return
            with suppress(OSError):
                self.alive.write_text(str(self.node))

    def _answer(self, worker: Worker) -> None:
        # Most requests to a server of many nodes ask in vain. The next round comes when the last two did: the shorter
        # of the two waits, for the other may have been one between studies.
        idle, waits = time.monotonic(), deque([0.0, 0.0], maxlen=2)
        while not self._leaves():
            asked, waited = self._pulled(), time.monotonic() - idle
            if asked is None:
                self.leaving.sleep(pause_after(waited, usual=min(waits)))
                continue
            waits.append(waited)
            try:
                self._serve(asked, worker)
            except Forgotten:
                raise
            except Exception as error:  # of the network, or of what a server sent: neither shall end the node
                self.note(f"A message is lost: {_reason(error)}")
            idle = time.monotonic()

    def _pulled(self) -> PulledMessage | None:
        try:
            asked = self.requests.pull(self.node)
        except (TransportError, StatusError, ValueError) as error:
            if isinstance(error, StatusError) and internals.code_of(error) == UNAUTHORIZED:
                raise Forgotten from None
            self._say_away(error)
            return None
        if self._away:
            self.note("The server answers again")
        self._away = False
        return asked

    def _serve(self, asked: PulledMessage, worker: Worker) -> None:
        message = self.requests.fetch(self.node, asked, self._trying)
        seconds, began = float(message.metadata.ttl), time.monotonic()
        internals.be(self.node, message.metadata.run_id)
        try:
            packed = worker.answer(internals.to_bytes(message), seconds, self._leaves)
        except WorkLost as error:
            self.note(f"{message.metadata.message_type}: {error}")
            reply = internals.failed(message, internals.CRASHED, f"{error}; the log of that node says more")
        else:
            if packed is None:
                return
            reply = internals.from_bytes(packed)
        took = time.monotonic() - began
        self.requests.push(self.node, reply, took, self._trying)
        self.note(f"{message.metadata.message_type}: answered after {took:.2f} s")

    def _leaves(self) -> bool:
        if self._forgotten.is_set():
            raise Forgotten
        return self.leaving.sleep(0.0)

    # ---- the network --------------------------------------------------------------------------------------------

    def _trying(self, call: Callable[[Request], Answer], request: Request) -> Answer:
        for i in range(TRIES):
            try:
                return call(request)
            except TransportError:
                if i == TRIES - 1 or self.leaving.sleep(PAUSE * 2**i):
                    raise
        raise AssertionError("not reached")

    def _say_away(self, error: Exception) -> None:
        if not self._away:
            self.note(f"The server does not answer ({_reason(error)}); the node goes on trying")
        self._away = True


def _reason(error: Exception) -> str:
    if not isinstance(error, StatusError):
        return str(error) or type(error).__name__
    code = internals.code_of(error)
    return "its run has ended" if code == internals.RUN_OVER else f"error {code}"


def _reject(error: TransportError | StatusError) -> None:
    """Raise if waiting would not help."""
    code = internals.code_of(error) if isinstance(error, StatusError) else None
    if code == internals.OTHER_VERSION:
        raise ConfigError("the server has another version of Flower", remedy="install the same version on both")
    if code == internals.NODE_REJECTED:
        raise Rejected
    if code == UNAUTHORIZED:
        what = "the server does not take this node's signature"
        raise PolyfedError(what, remedy="set the clocks of both machines, look at node.key")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
            raise PolyfedError(WRONG_AUTHORITY, remedy=COPY_AUTHORITY) from None
        cause = cause.__cause__ or cause.__context__
