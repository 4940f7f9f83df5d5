"""A Flower Strategy that runs polyfed's rounds: the method's own `broadcast` and `aggregate`, the engine's own guard,
checkpoints and events. What Flower leaves open is decided here: whom to ask, how long to wait, when to give up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from polyfed.engine.evaluation import PARTS
from polyfed.engine.events import Event, OnEvent, ignore
from polyfed.engine.rounds import FederationState, begun, conclude
from polyfed.engine.run import Run
from polyfed.errors import PolyfedError
from polyfed.flower.roster import Backoff, Roster
from polyfed.flower.round_context import Note, RoundContext
from polyfed.flower.wire import answered, message_to
from polyfed.methods import ClientResult, ClientUpdate, State
from polyfed.methods.messages import n_bytes
from polyfed.metrics import is_score

log = logging.getLogger("flwr")


class NoAnswer(Exception):
    """A client that was not connected, was not asked, or did not answer."""


class NodeError(Exception):
    """A client that says that it failed."""


@dataclass(frozen=True)
class Timeouts:
    nodes: int = 1  # clients that must be there in round 0
    timeout: float = 600.0  # seconds that clients have for a round
    wait: float = 120.0  # seconds for nodes to connect, in round 0 and when too few for a quorum are there
    lost: int = 3  # rounds in a row without a quorum after which the run ends


class PolyfedStrategy(Strategy):
    """Runs the rounds of a run. `run` is the server's: it has a folder, and no data."""

    def __init__(
        self, run: Run, context: RoundContext, roster: Roster, timeouts: Timeouts, on_event: OnEvent = ignore
    ) -> None:
        self.run, self.context, self.roster, self.timeouts, self.on_event = run, context, roster, timeouts, on_event
        self.backoff = Backoff()
        self.n_used, self.n_lost = 0, 0  # rounds that counted, and rounds in a row that did not
        self._asked: dict[int, str] = {}
        self._absent: dict[str, ClientResult] = {}
        self._bytes_down = 0
        self._next, self._event = run.federation_state, Event()  # what came of a round before it counts
        self._began = self._sent = self._trained = 0.0

    def summary(self) -> None:
        log.info("\t├──> method %s, %d clients", self.run.method.name, len(self.run.prepared.spec.clients))
        log.info("\t└──> rounds %d to %d", self.run.federation_state.round + 1, self.run.settings.rounds)

    # ---- a round ----------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the round to the clients that are drawn, connected and not backed off from."""
        self._began = time.perf_counter()
        run, method, settings = self.run, self.run.method, self.run.settings
        server, round = begun(method, run.federation_state, settings).server, run.federation_state.round + 1
        labelled = [client for client, counts in self.roster.labels.items() if any(counts.values())]
        sampled = settings.participants(labelled, round)
        messages, self._asked, self._bytes_down = [], {}, 0
        for client in self._choose(sampled, round):
            sent = method.broadcast(server, client)
            self._bytes_down += n_bytes(sent)
            messages.append(self._message(MessageType.TRAIN, client, sent, run.federation_state, round))
        self._sent = time.perf_counter()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every answer, and let the method aggregate the updates that are fit for use."""
        run, round = self.run, self.run.federation_state.round + 1
        waited = time.perf_counter() - self._sent
        silence = f"none within {self.timeouts.timeout:g} s" if waited >= self.timeouts.timeout else "it went away"
        outcomes = self._absent | {client: NoAnswer(silence) for client in self._asked.values()}
        for client, note, arrays in self._answers(replies):
            outcomes[client] = _outcome(note, arrays, round)
        for client in self._asked.values():
            if isinstance(outcomes[client], NoAnswer):
                self.backoff.failed(client, round)
            else:
                self.backoff.succeeded(client)
        tasks = [task.name for task in run.prepared.spec.tasks]
        declared = {client: {task: n.get(task, 0) for task in tasks} for client, n in self.roster.labels.items()}
        before, sent = begun(run.method, run.federation_state, run.settings), self._bytes_down
        after, event = conclude(run.method, before, outcomes, run.settings, declared=declared, bytes_down=sent)
        for client, reason in event["rejected"].items():
            log.warning("polyfed: round %d: rejected %s: %s", round, client, reason)
        if "dropped" in event:
            log.warning("polyfed: round %d: dropped, the model stays as it was: %s", round, event["dropped"])
        self._next, self._event, self._trained = after, event, time.perf_counter()
        return None, MetricRecord({"used": len(event["metrics"]), "asked": len(self._asked)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Every few rounds, and after the last one, all connected clients get the model and score it."""
        state, settings, method = self._next, self.run.settings, self.run.method
        self._asked = {}
        if not settings.evaluates(state.round):
            return []
        here = self.roster.refresh(self.context)
        return [
            self._message(
                MessageType.EVALUATE, client, method.prediction_state(state.server, client), state, state.round
            )
            for client in sorted(here)
            if state.round == settings.rounds or self.backoff.allows(client, state.round)
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Record the round, with the scores that came. It counts from here on."""
        state, answers = self._next, dict[str, object]()
        for client, note, _ in self._answers(replies):
            if "error" in note:
                log.warning("polyfed: round %d: no scores of %s: %s", state.round, client, note["error"])
            else:
                answers[client] = note.get("scores")
        for client in sorted(set(self._asked.values()) - answers.keys()):
            log.warning("polyfed: round %d: %s was not evaluated", state.round, client)
        kinds = {task.name: task.kind for task in self.run.prepared.spec.tasks}
        events = [self._event, *evaluation_events(state.round, answers, kinds)]
        seconds, evaluating = self._trained - self._began, time.perf_counter() - self._trained
        self.run.record(state, events, self.on_event, seconds=seconds, evaluation_seconds=evaluating)
        self._count(self._event["used"])
        return None

    # ---- parts of a round ---------------------------------------------------------------------------------------

    def _choose(self, sampled: list[str], round: int) -> list[str]:
        """The drawn clients that are asked; why the others are not is kept. If they are no quorum, it waits for more nodes."""
        settings, here = self.run.settings, self.roster.refresh(self.context)
        asked = [client for client in sampled if client in here and self.backoff.allows(client, round)]
        if not settings.is_enough(len(asked), len(sampled)):  # then nobody is skipped
            n_wanted = next(n for n in range(1, len(sampled) + 1) if settings.is_enough(n, len(sampled)))
            n_others = len(here - set(sampled))
            here = self.roster.wait_for(self.context, n_wanted + n_others, self.timeouts.wait)
            asked = [client for client in sampled if client in here]
        self._absent = {
            client: NoAnswer("it did not answer before and is asked again later" if client in here else "not connected")
            for client in sampled
            if client not in asked
        }
        return asked

    def _message(self, kind: str, client: str, sent: State, known: FederationState, round: int) -> Message:
        """A question to a client, with the round of its last update that was used, as the `known` state has it."""
        node, mark = self.roster.node_of[client], known.clients.get(client)
        self._asked[node] = client
        context = self.context.at(round, 0 if mark is None else int(mark["round"]))
        return message_to(node, kind, context.to_dict(), sent, self.timeouts.timeout)

    def _answers(self, replies: Iterable[Message]) -> Iterator[tuple[str, Note, State]]:
        """The answers of the clients that were asked."""
        for reply in replies:
            client = self._asked.get(reply.metadata.src_node_id)
            if client is None:
                continue
            note, arrays = answered(reply)
            if note.get("lost"):
                text = f"{client} has lost its state and begins anew"
                log.warning("polyfed: %s", text)
                self.run.log.add_timing(warning=text)
            yield client, note, arrays

    def _count(self, used: bool) -> None:
        self.n_used, self.n_lost = self.n_used + used, 0 if used else self.n_lost + 1
        if self.n_lost >= self.timeouts.lost:
            stopped = f"stopped after round {self.run.federation_state.round}"
            what = f"{self.n_lost} rounds in a row had no quorum or were dropped; {stopped}"
            remedy = "look at the rejected clients in events.jsonl, then resume"
            raise PolyfedError(what, where=self.run.folder or "", remedy=remedy)


def _outcome(note: Note, arrays: State, round: int) -> ClientResult:
    """An update, with the mark that the server keeps of it: the round, by which the client knows its state again."""
    if "error" in note:
        return NodeError(str(note["error"])[:300])
    try:
        return {"round": torch.tensor(round)}, ClientUpdate.from_wire(arrays)
    except Exception as error:  # whatever a node sends must not end the run
        return NodeError(f"its update is not understood ({type(error).__name__}: {error})")


def evaluation_events(round: int, reported: Mapping[str, object], kinds: Mapping[str, str]) -> list[Event]:
    """The events that the engine would have written itself of scores that clients report; what is none is left out.

    >>> reported = [{"part": "test", "model": "personal", "scores": {"pulse": {"rmse": 2.0, "mood": 1.0}}}]
    >>> evaluation_events(5, {"basel": reported}, {"pulse": "regression"})[0]["clients"]
    {'basel': {'pulse': {'rmse': 2.0}}}
    """
    events = []
    for model, part in product(("personal", "global"), PARTS):
        found = {client: _scores(reported[client], model, part, kinds) for client in sorted(reported)}
        if clients := {client: scores for client, scores in found.items() if scores}:
            events.append({"event": "evaluation", "round": round, "part": part, "model": model, "clients": clients})
    return events


def _scores(reported: object, model: str, part: str, kinds: Mapping[str, str]) -> dict[str, dict[str, float | None]]:
    for entry in reported if isinstance(reported, list) else ():
        if isinstance(entry, dict) and entry.get("model") == model and entry.get("part") == part:
            of_tasks = entry.get("scores")
            return {
                task: {name: x for name, x in of_task.items() if is_score(kinds[task], name) and _is_finite(x)}
                for task, of_task in (of_tasks.items() if isinstance(of_tasks, dict) else ())
                if task in kinds and isinstance(of_task, dict)
            }
    return {}


def _is_finite(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and abs(value) < float("inf"))
