"""One round as a function: states in, states and an event out. Nothing is changed in place, so a round that is cut off
half-way has never happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from polyfed.data import ClientData
from polyfed.engine.aggregation import aggregated
from polyfed.engine.events import Event
from polyfed.engine.settings import Settings
from polyfed.engine.validation import Declared, validate_updates
from polyfed.methods import ClientResult, Job, Method, State
from polyfed.methods.messages import n_bytes
from polyfed.seeds import Stream


@dataclass(frozen=True)
class FederationState:
    """All that a federation knows after a round: the server's state, and the state of each client that has one."""

    round: int
    server: State
    clients: Mapping[str, State]


def common(seed: int) -> Stream:
    """The stream from which server and clients start alike."""
    return Stream(seed, "start")


def begun(method: Method, federation_state: FederationState, settings: Settings) -> FederationState:
    """The state with which the next round begins: methods may ask clients for more in the last one."""
    left = settings.rounds - federation_state.round - 1
    return replace(federation_state, server=method.begin_round(federation_state.server, max(left, 0)))


def run_round(
    method: Method,
    federation_state: FederationState,
    data: Mapping[str, ClientData],
    settings: Settings,
    participants: Sequence[str] | None = None,
) -> tuple[FederationState, Event]:
    """The next round with these training data, and what happened in it.

    `participants` are drawn unless they are given. A client whose update is rejected keeps the state it had, for what it
    did was not used; without a quorum the whole round is dropped.
    """
    federation_state, round = begun(method, federation_state, settings), federation_state.round + 1
    able = [client for client, mine in data.items() if mine.n_labels]
    names = settings.participants(able, round) if participants is None else sorted(participants)
    messages = method.broadcasts(federation_state.server, names)
    known, start = federation_state.clients, common(settings.seed)
    states = [known[client] if client in known else method.start(data[client], start) for client in names]
    jobs = [
        Job(client, state, message, data[client], Stream(settings.seed, "local", round, client))
        for client, state, message in zip(names, states, messages, strict=True)
    ]
    outcomes = dict(zip(names, _shared_out(method, jobs, settings.workers), strict=True))
    declared = {client: data[client].counts() for client in names}
    sizes = {id(message): n_bytes(message) for message in {id(message): message for message in messages}.values()}
    sent = sum(sizes[id(message)] for message in messages)
    return conclude(method, federation_state, outcomes, settings, declared=declared, bytes_down=sent)


def conclude(
    method: Method,
    federation_state: FederationState,
    outcomes: Mapping[str, ClientResult],
    settings: Settings,
    *,
    declared: Declared,
    bytes_down: int,
) -> tuple[FederationState, Event]:
    """The server's part of a round, once every client that was asked has answered or failed: check, then aggregate.

    `declared` are the labels of each client as of round 0. If the state that would come out is no state to go on from, those
    who broke it are rejected too. Without a quorum of others the round is dropped: everything stays as it was, and the event
    says why.
    """
    round, names = federation_state.round + 1, sorted(outcomes)
    used, rejected = validate_updates(method, federation_state.server, outcomes, declared, settings.max_norm)
    enough = settings.is_enough(len(used), len(names))
    server, fault = federation_state.server, None
    if enough:
        updates = {name: update for name, (_, update) in used.items()}
        server, culprits, fault = aggregated(method, federation_state.server, updates, settings, len(names), round)
        used = {name: pair for name, pair in used.items() if name not in culprits}
        rejected = dict(sorted((rejected | culprits).items()))
    event = {
        "event": "round",
        "round": round,
        "sampled": names,
        "rejected": rejected,
        "used": enough and fault is None,
        **({} if fault is None else {"dropped": fault}),
        "bytes_down": bytes_down,
        "bytes_up": sum(update.n_bytes() for _, update in used.values()),  # what was rejected may have no size
        "metrics": {client: update.metrics for client, (_, update) in used.items()},
    }
    if not event["used"]:
        return replace(federation_state, round=round), event
    states = {client: state for client, (state, _) in used.items()}
    return FederationState(round, server, {**federation_state.clients, **states}), event


def _shared_out(method: Method, jobs: Sequence[Job], workers: int) -> list[ClientResult]:
    """Run all jobs in as many parts as there are workers; the outcomes are in the order of the jobs."""
    if workers == 1 or len(jobs) < 2:
        return method.local_many(jobs)
    parts = [jobs[i::workers] for i in range(min(workers, len(jobs)))]
    with ThreadPoolExecutor(len(parts)) as pool:
        done = list(pool.map(method.local_many, parts))
    return [done[i % len(parts)][i // len(parts)] for i in range(len(jobs))]
