"""Flower's Grid with all nodes in this process: no Ray, no SuperLink, no network, but every message is packed for the
network and unpacked again, so that what passes here passes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from polyfed.flower import internals
from polyfed.flower.own_config import NodeConfig

SERVER = 1  # node number of the server; clients follow


class InProcessGrid(Grid):
    """Runs a ClientApp for each node config, one after the other; `watch` sees every message, in both directions."""

    def __init__(
        self, app: ClientApp, node_configs: Sequence[NodeConfig], *, watch: Callable[[Message], None] | None = None
    ) -> None:
        self.app, self.watch = app, watch
        self._replies: dict[str, Message] = {}
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config=dict(config), state=RecordDict(), run_config={})
            for node, config in enumerate(node_configs, start=SERVER + 1)
        }
        internals.be(SERVER, run=1)

    def set_run(self, run: internals.Run) -> None:
        self._run = run

    @property
    def run(self) -> internals.Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Here a client answers at once; its reply waits until it is pulled."""
        pushed = {uuid4().hex: message for message in messages}
        for number, message in pushed.items():
            internals.number(message, number)
            self._replies[number] = self._travel(self._run_client(self._travel(message)))
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _run_client(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        internals.be(node, run=1)
        try:
            reply = self.app(message, self.contexts[node])
        except Exception as error:
            reply = internals.failed(message, internals.RAISED, repr(error))
        finally:
            internals.be(SERVER, run=1)
        internals.sent_by(reply, node)
        return reply

    def _travel(self, message: Message) -> Message:
        arrived = internals.from_bytes(internals.to_bytes(message))
        if self.watch is not None:
            self.watch(arrived)
        return arrived
