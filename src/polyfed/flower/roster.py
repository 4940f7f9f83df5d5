"""Which client sits at which node. Nodes come, go and come back under another number; clients keep their names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from polyfed.data.schema.vetting import is_text, shown
from polyfed.errors import DataError
from polyfed.flower import versions
from polyfed.flower.wire import content, opened

log = logging.getLogger("flwr")
LONGEST_NAME = 200  # characters of a client's name
LONGEST_BACKOFF = 16  # rounds
PAUSE = 1.0  # seconds between two looks at who is there


@dataclass
class Roster:
    """Who is who."""

    grid: Grid  # Flower's way to the nodes
    timeout: float  # seconds that nodes have to say who they are
    node_of: dict[str, int] = field(default_factory=dict)  # client → its node, as far as it is known
    # Client → task → training labels, as it declared in round 0; no update may claim more.
    labels: dict[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)  # nodes that take no part, so that they are not asked again
    versions: dict[int, dict[str, str]] = field(default_factory=dict)  # node → the versions that it says it has
    on_versions: Callable[[], None] = lambda: None  # is called when one has reported them

    @property
    def labelled(self) -> set[str]:
        """The clients that have something to learn from."""
        return {client for client, counts in self.labels.items() if any(counts.values())}

    def gather(self, context: dict[str, Any], n_nodes: int, wait: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Round 0: client → what it reported, still to be validated; who takes no part, by its name if it has one → why."""
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

    def reject(self, client: str) -> None:
        """This client takes no part."""
        self.rejected.add(self.node_of.pop(client))

    def refresh(self, context: dict[str, Any], members: Iterable[str]) -> set[str]:
        """The members that are connected; a node that is new is asked who it is."""
        present = set(self.grid.get_node_ids())
        known = set(self.node_of.values())
        if unknown := sorted(present - known - self.rejected):
            wanted = set(members)
            for node, reported in self._ask(unknown, context).items():
                if "error" in reported or reported.get("client") not in wanted:
                    absent = f"client {reported.get('client')!r} was not there when the study began"
                    reason = reported.get("error", absent)
                    log.warning("polyfed: node %d takes no part: %s", node, reason)
                    self.rejected.add(node)
                elif self.node_of.get(reported["client"]) in present:
                    log.warning("polyfed: node %d says it is client %r, as another does", node, reported["client"])
                    self.rejected.add(node)
                else:
                    self.node_of[reported["client"]] = node
        return {client for client, node in self.node_of.items() if node in present}

    def wait_for(self, context: dict[str, Any], members: Iterable[str], n_wanted: int, wait: float) -> set[str]:
        """The members that are connected, once there are so many or the time is over."""
        members, end = list(members), time.monotonic() + wait
        while len(here := self.refresh(context, members)) < n_wanted and time.monotonic() < end:
            time.sleep(PAUSE)
        return here

    def _ask(self, nodes: list[int], context: dict[str, Any]) -> dict[int, dict[str, Any]]:
        messages = [message_to(node, MessageType.QUERY, content(context), self.timeout) for node in nodes]
        answers: dict[int, dict[str, Any]] = {}
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            node = reply.metadata.src_node_id
            try:
                reported = {"error": failure(reply)} if reply.has_error() else opened(reply)[0]
                if "error" not in reported:
                    _check(reported)
                    self.versions[node] = versions.read(reported)
                answers[node] = reported if "error" not in reported else {"error": in_a_line(reported["error"])}
            except (ValueError, TypeError, KeyError) as error:
                answers[node] = {"error": in_a_line(f"its answer is not understood ({error})")}
        self.on_versions()
        return answers


@dataclass
class Backoff:
    """Whom not to ask: a client that did not answer costs the whole timeout, so it is skipped for 1, 2, 4, ... rounds.

    >>> backoff = Backoff()
    >>> backoff.failed("basel", 3)
    >>> [backoff.allows("basel", round) for round in (4, 5)], backoff.allows("bern", 4)
    ([False, True], True)
    """

    # Client → how often in a row it has failed, and the round from which it is asked again.
    failures: dict[str, tuple[int, int]] = field(default_factory=dict)

    def allows(self, client: str, round: int) -> bool:
        return round >= self.failures.get(client, (0, 0))[1]

    def failed(self, client: str, round: int) -> None:
        """It was asked in this round and did not answer."""
        n = self.failures.get(client, (0, 0))[0] + 1
        self.failures[client] = n, round + 1 + min(2 ** (n - 1), LONGEST_BACKOFF)

    def succeeded(self, client: str) -> None:
        self.failures.pop(client, None)


def _check(reported: dict[str, Any]) -> None:
    """A name that can be written, shown and distinguished from others."""
    name = reported["client"]
    if not is_text(name) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise TypeError(f"its name is {shown(name)}")


def in_a_line(text: Any) -> str:
    """What a node says of an error, fit for a log: one line, and not a long one."""
    line = "".join(c if c.isprintable() else " " for c in str(text)[:300])
    return line.encode(errors="replace").decode()


def message_to(node: int, kind: str, what: Any, timeout: float) -> Message:
    """A message that is worth nothing once nobody waits for its answer any more."""
    return Message(what, dst_node_id=node, message_type=kind, ttl=timeout + 5.0)


def failure(reply: Message) -> str:
    """Why Flower has no answer of a node, in its last line."""
    lines = str(reply.error.reason or "").strip().splitlines()
    return f"Flower's error {reply.error.code}" + (f": {lines[-1][:200]}" if lines else "")
