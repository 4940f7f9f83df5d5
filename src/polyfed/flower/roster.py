"""Which node each client has. Nodes come, go and come back under another number; clients keep their names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import MessageType
from flwr.serverapp import Grid

from polyfed.data.schema.vetting import is_text, shown
from polyfed.errors import DataError
from polyfed.flower import versions
from polyfed.flower.round_context import Note, RoundContext
from polyfed.flower.wire import answered, message_to

log = logging.getLogger("flwr")
LONGEST_NAME = 200  # characters of a client's name
LONGEST_BACKOFF = 16  # rounds
PAUSE = 1.0  # seconds between two looks at who is there


@dataclass
class Roster:
    grid: Grid  # Flower's way to the nodes
    timeout: float  # seconds that nodes have to say who they are
    node_of: dict[str, int] = field(default_factory=dict)  # client → its node, as far as it is known
    # Client → task → training labels, as it declared in round 0; no update may claim more.
    labels: dict[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)  # nodes that take no part, so that they are not asked again
    versions: dict[int, dict[str, str]] = field(default_factory=dict)  # node → the versions that it says it has
    on_versions: Callable[[], None] = lambda: None  # is called when one has reported them

    def gather(self, context: RoundContext, n_nodes: int, wait: float) -> tuple[dict[str, object], dict[str, str]]:
        """Round 0: client → what it reported, to be validated; client or node that takes no part → the reason."""
        end = time.monotonic() + wait
        while len(present := sorted(self.grid.get_node_ids())) < n_nodes and time.monotonic() < end:
            time.sleep(PAUSE)
        if len(present) < n_nodes:
            what = f"{len(present)} of {n_nodes} nodes are connected after {wait:g} s"
            raise DataError(what, where="round 0", remedy="start the others, or ask for fewer nodes")
        answers = self._ask(present, context)
        nodes: dict[str, list[int]] = {}
        rejected: dict[str, str] = {}
        for node in present:
            reported = answers.get(node, {"error": f"it did not describe its data within {self.timeout:g} s"})
            if "error" in reported:
                rejected[f"node {node}"] = reported["error"]
                self.rejected.add(node)
            else:
                nodes.setdefault(reported["client"], []).append(node)
        for client, found in nodes.items():
            if len(found) > 1:  # which of them is it? To take either would let one take the other's place
                rejected[client] = f"{len(found)} nodes say that they are this client"
                self.rejected.update(found)
            else:
                self.node_of[client] = found[0]
        return {client: answers[node].get("summary") for client, node in self.node_of.items()}, rejected

    def refresh(self, context: RoundContext) -> set[str]:
        """The members that are connected; a node that is new is asked who it is."""
        present, members = set(self.grid.get_node_ids()), set(context.members)
        if unknown := sorted(present - set(self.node_of.values()) - self.rejected):
            for node, reported in self._ask(unknown, context).items():
                client = reported.get("client")
                if "error" in reported or client not in members:
                    absent = f"client {client!r} was not there when the study began"
                    log.warning("polyfed: node %d takes no part: %s", node, reported.get("error", absent))
                    self.rejected.add(node)
                elif self.node_of.get(client) in present:
                    log.warning("polyfed: node %d says it is client %r, as another does", node, client)
                    self.rejected.add(node)
                else:
                    self.node_of[client] = node
        return {client for client, node in self.node_of.items() if node in present}

    def wait_for(self, context: RoundContext, n_wanted: int, wait: float) -> set[str]:
        """The members that are connected, once there are `n_wanted` or the time is over."""
        end = time.monotonic() + wait
        while len(here := self.refresh(context)) < n_wanted and time.monotonic() < end:
            time.sleep(PAUSE)
        return here

    def _ask(self, nodes: list[int], context: RoundContext) -> dict[int, Note]:
        note = context.to_dict()
        messages = [message_to(node, MessageType.QUERY, note, None, self.timeout) for node in nodes]
        answers: dict[int, Note] = {}
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            node, (reported, _) = reply.metadata.src_node_id, answered(reply)
            error = str(reported["error"]) if "error" in reported else _misnamed(reported)
            if error is None:
                self.versions[node] = versions.read(reported)
                answers[node] = reported
            else:  # fit for a log: one line, and not a long one
                line = "".join(c if c.isprintable() else " " for c in error[:300])
                answers[node] = {"error": line.encode(errors="replace").decode()}
        self.on_versions()
        return answers


@dataclass
class Backoff:
    """Clients that are not asked: one that did not answer costs the whole timeout, so it is skipped for 1, 2, 4, ... rounds.

    >>> backoff = Backoff()
    >>> backoff.failed("basel", 3)
    >>> [backoff.allows("basel", round) for round in (4, 5)], backoff.allows("bern", 4)
    ([False, True], True)
    """

    # Client → how often it has failed in a row, and the round from which it is asked again.
    failures: dict[str, tuple[int, int]] = field(default_factory=dict)

    def allows(self, client: str, round: int) -> bool:
        return round >= self.failures.get(client, (0, 0))[1]

    def failed(self, client: str, round: int) -> None:
        n = self.failures.get(client, (0, 0))[0] + 1
        self.failures[client] = n, round + 1 + min(2 ** (n - 1), LONGEST_BACKOFF)

    def succeeded(self, client: str) -> None:
        self.failures.pop(client, None)


def _misnamed(reported: Note) -> str | None:
    """What is wrong with a name that cannot be written, shown and distinguished from others."""
    if "client" not in reported:
        return "its answer is not understood ('client')"
    name = reported["client"]
    if not is_text(name) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        return f"its answer is not understood (its name is {shown(name)})"
    return None
