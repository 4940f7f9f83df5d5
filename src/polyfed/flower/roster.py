"""Which client sits at which node. Nodes come, go and come back under another number; clients keep their names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from polyfed.data import Description
from polyfed.errors import DataError
from polyfed.flower.wire import content, opened

log = logging.getLogger("flwr")
PAUSE = 1.0  # seconds between two looks at who is there


@dataclass
class Roster:
    """Who is who.

    Attributes:
        grid: Flower's way to the nodes.
        timeout: seconds that nodes have to say who they are.
        node_of: client → its node, as far as it is known.
        labelled: the clients that have something to learn from.
        refused: nodes that take no part, so that they are not asked again.
    """

    grid: Grid
    timeout: float
    node_of: dict[str, int] = field(default_factory=dict)
    labelled: set[str] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def gather(self, brief: dict[str, Any], n_nodes: int, wait: float) -> dict[str, Description]:
        """Round 0: wait until as many nodes are there, and let them describe their data; an error if they do not."""
        self._wait(lambda present: len(present) >= n_nodes, wait)
        present = sorted(self.grid.get_node_ids())
        if len(present) < n_nodes:
            raise DataError(
                f"{len(present)} of {n_nodes} nodes are connected after {wait:g} s",
                where="round 0",
                remedy="start the others, or ask for fewer nodes",
            )
        answers = self._ask(present, brief)
        silent = [node for node in present if node not in answers]
        if silent:
            raise DataError(
                f"node {silent[0]} did not describe its data within {self.timeout:g} s",
                where="round 0",
                remedy="look at its log, or allow more time",
            )
        for node, told in answers.items():
            if "error" in told:
                raise DataError(
                    f"node {node} takes no part: {told['error']}", where="round 0", remedy="correct it there"
                )
            self._enter(node, told, strict=True)
        return {told["client"]: Description.from_dict(told["description"]) for told in answers.values()}

    def refresh(self, brief: dict[str, Any], members: Iterable[str]) -> set[str]:
        """The members that are connected; a node that is new is asked who it is."""
        present = set(self.grid.get_node_ids())
        known = set(self.node_of.values())
        if strangers := sorted(present - known - self.refused):
            wanted = set(members)
            for node, told in self._ask(strangers, brief).items():
                if "error" in told or told.get("client") not in wanted:
                    reason = told.get("error", f"client {told.get('client')!r} was not there when the study began")
                    log.warning("polyfed: node %d takes no part: %s", node, reason)
                    self.refused.add(node)
                elif self.node_of.get(told["client"]) in present:
                    log.warning("polyfed: node %d says it is client %r, as another does", node, told["client"])
                    self.refused.add(node)
                else:
                    self._enter(node, told, strict=False)
        return {client for client, node in self.node_of.items() if node in present}

    def wait_for(self, brief: dict[str, Any], members: Iterable[str], n_wanted: int, wait: float) -> set[str]:
        """The members that are connected, once there are so many or the time is over."""
        members, end = list(members), time.monotonic() + wait
        while len(here := self.refresh(brief, members)) < n_wanted and time.monotonic() < end:
            time.sleep(PAUSE)
        return here

    def _wait(self, enough: Callable[[list[int]], bool], wait: float) -> None:
        end = time.monotonic() + wait
        while not enough(list(self.grid.get_node_ids())) and time.monotonic() < end:
            time.sleep(PAUSE)

    def _ask(self, nodes: list[int], brief: dict[str, Any]) -> dict[int, dict[str, Any]]:
        messages = [letter(node, MessageType.QUERY, content(brief), self.timeout) for node in nodes]
        answers: dict[int, dict[str, Any]] = {}
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            node = reply.metadata.src_node_id
            try:
                told = {"error": failure(reply)} if reply.has_error() else opened(reply)[0]
                if "error" not in told and not isinstance(told["client"], str):
                    raise TypeError("its name is no text")
                answers[node] = told
            except (ValueError, TypeError, KeyError) as error:
                answers[node] = {"error": f"its answer is not understood ({error})"}
        return answers

    def _enter(self, node: int, told: dict[str, Any], *, strict: bool) -> None:
        client = told["client"]
        if strict and client in self.node_of:
            raise DataError(
                f"two nodes say that they are client {client!r}",
                where="round 0",
                remedy="give each a name of its own: the file's, or client in its node config",
            )
        self.node_of[client] = node
        if told.get("labels"):
            self.labelled.add(client)


def letter(node: int, kind: str, what: Any, timeout: float) -> Message:
    """A message that is worth nothing once nobody waits for its answer any more."""
    return Message(what, dst_node_id=node, message_type=kind, ttl=timeout + 5.0)


def failure(reply: Message) -> str:
    """Why Flower has no answer of a node, in its last line."""
    lines = str(reply.error.reason or "").strip().splitlines()
    return f"Flower's error {reply.error.code}" + (f": {lines[-1][:200]}" if lines else "")
